// Package netlink stands in for the module of that name: it answers what the RDMA shared device
// plugin asks of it from sysfs, since a mount namespace shows the plugin another machine's sysfs,
// but no other machine's netlink.
package netlink

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// LinkAttrs is what is known of an interface.
type LinkAttrs struct {
	Name         string
	EncapType    string
	HardwareAddr net.HardwareAddr
}

// Link is an interface.
type Link interface {
	Attrs() *LinkAttrs
}

type device struct{ attrs LinkAttrs }

func (d *device) Attrs() *LinkAttrs { return &d.attrs }

// Names of ARPHRD_* numbers, as netlink has them (linux/if_arp.h).
var encapsulations = map[string]string{"1": "ether", "32": "infiniband"}

// LinkByName returns the interface of that name in /sys/class/net.
func LinkByName(name string) (Link, error) {
	raw, err := os.ReadFile(filepath.Join("/sys/class/net", name, "type"))
	if err != nil {
		return nil, fmt.Errorf("Link not found: %w", err)
	}
	return &device{LinkAttrs{Name: name, EncapType: encapsulations[strings.TrimSpace(string(raw))]}}, nil
}

// LinkSetUp changes nothing: the interface exists in sysfs alone.
func LinkSetUp(Link) error { return nil }

// RdmaSystemGetNetnsMode returns the kernel's default.
func RdmaSystemGetNetnsMode() (string, error) { return "shared", nil }
