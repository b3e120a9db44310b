module github.com/vishvananda/netlink

go 1.24
