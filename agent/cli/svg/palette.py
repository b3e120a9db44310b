"""Colours and sizes of the picture. Sizes are SVG user units, which browsers show as pixels.

The colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with
any colour vision tell apart, and light tints of them; nothing is told by colour alone.
"""

PAPER = "#ffffff"
INK = "#1a1a1a"
FAINT = "#5c5c5c"
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"

NUMA_FILL, NUMA_LINE = "#f6f6f4", "#9a9a94"
SOCKET_LINE = "#6e6e68"
CPU_FILL, CPU_EDGE = "#e4e4df", "#6e6e68"
SWITCH_FILL, SWITCH_LINE = "#dbe9f5", "#0072b2"
GPU_FILL, GPU_LINE = "#d5efe5", "#007a58"
NIC_FILL, NIC_LINE = "#fdf0cf", "#b57900"
OTHER_FILL, OTHER_LINE = "#f3e6ee", "#8f5f7c"
NVLINK = "#a8508a"
"""Okabe and Ito's reddish purple, darker, so that thin lines hold on white."""
NVLINK_FILL = "#f5e3ee"
PCIE = "#0072b2"
BETWEEN = "#6e6e68"
C2C = "#007a58"
WAY = "#d55e00"
BAD = "#b04a00"

MARGIN = 24
CARD = 92
"""Width of a device."""

GAP = 12
"""Between two devices."""

BLOCK_GAP = 44
"""Between two NUMA nodes, room for the name of the link between them."""

ROW = 62
"""From one row of switches to the next."""

CHIP_H = 28
CHIP_W = 78
"""Of a switch: narrower than a card, so that a line can pass beside it."""

PAD = 14
"""Between a frame and what it holds."""
