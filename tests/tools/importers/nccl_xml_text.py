"""Small topologies as NCCL writes them, and as people write them by hand."""
# ruff: noqa: E501 - one element a line, as NCCL has it

DUMP = """\
<system version="1">
  <cpu numaid="1" affinity="00000001,f0000000" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
    <pci busid="0000:40:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0072" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:43:00.0" class="0x030200" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:44:00.0" count="2" tclass="0x030200"/>
          <nvlink target="fffffff:ffff:ff" count="1" tclass="0x068000"/>
          <c2c bw="44712" count="10"/>
        </gpu>
      </pci>
      <pci busid="0000:44:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:43:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:42:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0x9a70500003ae6d94" maxconn="131072" gdr="1"/>
          <net name="mlx5_0" dev="1" speed="200000" port="2" latency="0.000000" guid="0x9a70500003ae6d94" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
    <pci busid="0000:46:00.0" class="0x080100" vendor="0x15b3" device="0x2100" link_speed="64.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0_dma" dev="2" speed="400000" port="1" guid="0x9a70500003ae6d94"/>
      </nic>
    </pci>
  </cpu>
</system>
"""
"""A dump with one of everything that the format knows, of no machine that exists."""

BY_HAND = """\
<?xml version='1.0' encoding='utf-8'?>
<!-- a cloud's file: invented switches, no gpu elements -->
<system version='1'>
  <cpu numaid='0' affinity='000000ff'>
    <pci busid='ffff:ff:01.0' class='0x060400' vendor='0xffff' device='0xffff'>
      <pci busid='0001:00:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'/>
      <pci busid='0101:00:00.0' class='0x020700' link_speed='' link_width='0'/>
    </pci>
  </cpu>
  <cpu numaid='-1' affinity=''>
    <pci busid='0000:02:00.0' class='0x030200'/>
  </cpu>
</system>
"""
