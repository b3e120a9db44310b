"""Settings of the daemon: declared once, read from four places, each value with its origin.

A setting goes from ``settings.py``, which declares it, through ``resolve.py``, which gives it its
value, to the component of the daemon that uses it. Settings of NVIDIA's device plugin are read
too, under NVIDIA's names: :mod:`agent.config.nvidia`.

One name gives all spellings: ``sysfs_root`` is the flag ``--sysfs-root``, the key
``sysfs-root`` and the variable ``NODETOPO_SYSFS_ROOT``. A unit that ends a field's name
(``_s``) is left out of them. Only the command line and the daemon use :class:`Settings`;
lower layers get values.
"""
