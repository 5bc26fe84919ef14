package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"podium/pkg/netrules"
	"podium/pkg/proxy/services"
)

// lockSeconds is how long to wait for the xtables lock.
const lockSeconds = 5

// Host implements Kernel on this machine with the iptables programs.
type Host struct {
	tool   *goiptables.IPTables
	name   string // of the program: iptables or ip6tables
	family services.Family
	nft    bool // the programs write to nf_tables
}

// NewHost finds the programs of a family. It returns an error if they are missing.
func NewHost(family services.Family) (*Host, error) {
	name, protocol := "iptables", goiptables.ProtocolIPv4
	if family == services.IPv6 {
		name, protocol = "ip6tables", goiptables.ProtocolIPv6
	}
	tool, err := goiptables.New(goiptables.IPFamily(protocol), goiptables.Timeout(lockSeconds))
	if err != nil {
		return nil, fmt.Errorf("%s: %w (Debian's package: iptables)", name, err)
	}
	out, err := exec.Command(name, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", name, err)
	}
	return &Host{tool: tool, name: name, family: family, nft: bytes.Contains(out, []byte("nf_tables"))}, nil
}

// Restore implements Kernel.
func (h *Host) Restore(ctx context.Context, batch []byte) error {
	cmd := exec.CommandContext(ctx, h.name+"-restore", "--noflush", "--wait", strconv.Itoa(lockSeconds))
	cmd.Stdin = bytes.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return restoreError(err, string(out), batch)
	}
	return nil
}

// restoreError adds the line of the batch that iptables-restore reports.
func restoreError(err error, output string, batch []byte) error {
	message := strings.TrimSpace(output)
	_, after, found := strings.Cut(message, "line: ")
	if !found {
		_, after, found = strings.Cut(message, "line ")
	}
	if found {
		digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		if n, convErr := strconv.Atoi(digits); convErr == nil {
			lines := strings.Split(string(batch), "\n")
			if n >= 1 && n <= len(lines) {
				message += "; that line is: " + lines[n-1]
			}
		}
	}
	return fmt.Errorf("iptables-restore: %w: %s", err, message)
}

// Counts implements Kernel.
func (h *Host) Counts(ctx context.Context, table string) (map[string]int, error) {
	if h.nft {
		return nftCounts(h.nftFamily(), table)
	}
	if !h.loaded(table) {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, h.name+"-save", "-t", table).Output()
	if err != nil {
		return nil, fmt.Errorf("%s-save -t %s: %w", h.name, table, err)
	}
	return parseSave(out), nil
}

// loaded reports whether the kernel of the legacy programs has loaded the table. A
// table that is not loaded has no chains, and iptables-save would fail if the kernel
// does not support it.
func (h *Host) loaded(table string) bool {
	names := "/proc/net/ip_tables_names"
	if h.family == services.IPv6 {
		names = "/proc/net/ip6_tables_names"
	}
	tables, err := os.ReadFile(names)
	return err != nil || slices.Contains(strings.Fields(string(tables)), table)
}

func (h *Host) nftFamily() uint8 {
	if h.family == services.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// parseSave returns the number of rules by chain in the output of iptables-save.
func parseSave(save []byte) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(string(save)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case strings.HasPrefix(word, ":") && len(word) > 1:
			counts[word[1:]] += 0
		case word == "-A":
			chain, _, _ := strings.Cut(rest, " ")
			counts[chain]++
		}
	}
	return counts
}

// Generation implements Kernel.
func (h *Host) Generation() (uint32, bool) {
	if !h.nft {
		return 0, false
	}
	g, err := nftGeneration()
	return g, err == nil
}

// Hook implements Kernel.
func (h *Host) Hook(k netrules.Hook) (bool, error) {
	rule := k.Words()
	there, err := h.tool.Exists(k.Table, k.Chain, rule...)
	if err != nil || there {
		return false, err
	}
	return true, h.tool.Insert(k.Table, k.Chain, 1, rule...)
}

// Unhook implements Kernel.
func (h *Host) Unhook(k netrules.Hook) error {
	for {
		there, err := h.tool.Exists(k.Table, k.Chain, k.Words()...)
		if err != nil || !there {
			return ignoreMissing(err)
		}
		if err := h.tool.Delete(k.Table, k.Chain, k.Words()...); err != nil {
			return err
		}
	}
}

// ignoreMissing returns nil for an error that says that the chain does not exist.
func ignoreMissing(err error) error {
	var tool *goiptables.Error
	if errors.As(err, &tool) && (tool.IsNotExist() || strings.Contains(tool.Error(), "No chain/target/match")) {
		return nil
	}
	return err
}

// Features implements Kernel. It creates and removes a chain with one rule for each
// match.
func (h *Host) Features(ctx context.Context) (Features, error) {
	try := func(table, rule string) error {
		c := netrules.Chain{Table: table, Name: chainProbe}
		if err := h.Restore(ctx, netrules.Batch{Write: map[netrules.Chain][]string{c: {rule}}}.Render()); err != nil {
			return err
		}
		return h.Restore(ctx, netrules.Batch{Delete: []netrules.Chain{c}}.Render())
	}
	if err := try(netrules.NAT, "-j RETURN"); err != nil {
		return Features{}, fmt.Errorf("%s does not work here: %w", h.name, err)
	}
	has := func(rule string) bool { return try(netrules.NAT, rule) == nil }
	return Features{
		Comment:     has(netrules.Comment("x") + " -j RETURN"),
		Statistic:   has(netrules.Share(2) + " -j RETURN"),
		Recent:      has("-m recent --name KUBE-PROXY-PROBE --rcheck --seconds 10 --reap" + wholeAddress(h.family) + " --rsource -j RETURN"),
		RandomFully: has("-j MASQUERADE --random-fully"),
		SCTP:        has(netrules.Port("sctp", 1) + " -j RETURN"),
		ReversePath: try(netrules.Raw, "-m rpfilter --invert -j RETURN") == nil,
	}, nil
}

// RemoveEmptyHostPorts removes the top chains of the CNI portmap plugin, which remain
// after the last host port, and the jumps to them. It does nothing while a host port
// is mapped.
func (h *Host) RemoveEmptyHostPorts() error {
	const ports, mark, masquerade = "CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"
	there, err := h.tool.ChainExists(netrules.NAT, ports)
	if err != nil || !there {
		return err
	}
	mapped, err := h.tool.List(netrules.NAT, ports)
	if err != nil || len(mapped) > 1 { // the first line declares the chain
		return err
	}
	for _, system := range []string{"PREROUTING", "OUTPUT", "POSTROUTING"} {
		if err := h.removeJumps(system, ports, masquerade); err != nil {
			return err
		}
	}
	var errs []error
	for _, chain := range []string{ports, masquerade, mark} {
		if there, err := h.tool.ChainExists(netrules.NAT, chain); err == nil && there {
			errs = append(errs, h.tool.ClearAndDeleteChain(netrules.NAT, chain))
		}
	}
	return errors.Join(errs...)
}

// removeJumps deletes the rules of a nat chain that jump to one of the targets.
func (h *Host) removeJumps(chain string, targets ...string) error {
	lines, err := h.tool.List(netrules.NAT, chain)
	if err != nil {
		return err
	}
	for i := len(lines) - 1; i > 0; i-- { // line 0 is the policy; backwards, so that the numbers stay valid
		for _, t := range targets {
			if strings.HasSuffix(lines[i], " -j "+t) {
				if err := h.tool.DeleteById(netrules.NAT, chain, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
