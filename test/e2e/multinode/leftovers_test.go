package multinode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"podium/test/e2e/docked"
)

// traces is what identifies remains of a deleted cluster, all by its own names and addresses,
// since the engine is shared with others.
type traces struct {
	label     string
	nodes     []string
	volumes   []string
	networks  []string
	addresses []string // of the nodes, and of their network
	bridges   []string
}

func (c cluster) traces(ctx context.Context) (t traces, err error) {
	t.label = "label=podium.dev/cluster=" + c.Name
	var errs []error
	ask := func(args ...string) []string {
		out, err := docked.Docker(ctx, args...)
		errs = append(errs, err)
		return strings.Fields(out)
	}
	t.nodes = ask("ps", "--all", "--filter", t.label, "--format", "{{.Names}}")
	t.networks = ask("network", "ls", "--filter", t.label, "--format", "{{.ID}}")
	t.volumes = ask(append([]string{"inspect", "--format", `{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}} {{end}}{{end}}`}, t.nodes...)...)
	t.addresses = ask(append([]string{"inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}"}, t.nodes...)...)
	for _, id := range t.networks {
		t.bridges = append(t.bridges, "br-"+id)
		t.addresses = append(t.addresses, ask("network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}", id)...)
	}
	if len(t.volumes) < len(t.nodes) || len(t.addresses) <= len(t.nodes) || len(t.networks) != 1 {
		errs = append(errs, fmt.Errorf("a node has no volume, no address or no network: %+v", t))
	}
	return t, errors.Join(errs...)
}

// left returns an error for everything that is left.
func (t traces) left(ctx context.Context) error {
	var errs []error
	found := func(format string, args ...any) { errs = append(errs, fmt.Errorf("left behind: "+format, args...)) }
	for what, args := range map[string][]string{
		"container": {"ps", "--all", "--quiet", "--filter", t.label},
		"network":   {"network", "ls", "--quiet", "--filter", t.label},
		"volume":    {"volume", "ls", "--quiet", "--filter", t.label},
	} {
		out, err := docked.Docker(ctx, args...)
		errs = append(errs, err)
		for _, id := range strings.Fields(out) {
			found("%s %s", what, id)
		}
	}
	for what, names := range map[string][]string{"container": t.nodes, "volume": t.volumes, "network": t.networks} {
		for _, name := range names {
			if _, err := docked.Docker(ctx, what, "inspect", name); err == nil {
				found("%s %s", what, name)
			}
		}
	}
	interfaces, err := net.Interfaces()
	errs = append(errs, err)
	for _, i := range interfaces {
		for _, b := range t.bridges {
			if i.Name == b {
				found("interface %s", b)
			}
		}
	}
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		out, err := exec.CommandContext(ctx, program).Output()
		errs = append(errs, err)
		for _, rule := range strings.Split(string(out), "\n") {
			if t.speaks(rule) {
				found("%s: %s", program, rule)
			}
		}
	}
	return errors.Join(errs...)
}

// speaks reports whether a rule contains an address or name of the cluster.
func (t traces) speaks(rule string) bool {
	words := strings.FieldsFunc(rule, func(r rune) bool { return r == ' ' || r == ':' })
	for _, w := range append(words, strings.Fields(rule)...) { // IPv6 addresses have colons of their own
		w = strings.TrimSuffix(strings.TrimSuffix(w, "/32"), "/128")
		for _, name := range append(t.addresses, t.bridges...) {
			if w == name {
				return true
			}
		}
	}
	return false
}
