"""A VM, its disk, and an external snapshot of it, as libvirt's test driver takes them."""

SNAPSHOT = """<domainsnapshot><name>s1</name><state>shutoff</state><creationTime>1</creationTime>
<memory snapshot='no'/><disks><disk name='vda' snapshot='external' type='file'>
<driver type='qcow2'/><source file='{}'/></disk></disks>{}</domainsnapshot>"""
VM = """<domain type='test'><name>web1</name><uuid>6f0a7a0c-0000-4000-8000-000000000001</uuid>
<memory>1024</memory><os><type arch='i686'>hvm</type></os><devices>{}</devices></domain>"""
DISK = """<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{}'/><target dev='vda'/></disk>"""
