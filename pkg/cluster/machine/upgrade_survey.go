package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/drain"
	"podium/pkg/cluster/poll"
	"podium/pkg/version"
)

// survey is what an upgrade is judged by.
type survey struct {
	node    string // this one
	plane   bool
	drained bool   // its pods shall move
	own     string // address of this machine's apiserver
	to      string

	nodes   []*corev1.Node
	pods    drain.Sorted
	servers []server
	members []member
	held    []held // certificates
	now     time.Time
	room    error // why the files have no room
	install error
}

// finding is something that speaks against an upgrade.
type finding struct {
	check string // its name, by which it is ignored
	text  string
	do    string
	warn  bool
}

func (u *upgrading) survey(ctx context.Context) (*survey, error) {
	s := &survey{node: u.Node, plane: u.plane, drained: u.Drain, own: u.localServer(), to: u.to, now: u.Now(), room: u.room(), install: u.installable(ctx)}
	var err error
	if s.nodes, err = u.fleet.nodes(ctx); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	if s.servers, err = u.fleet.servers(ctx); err != nil {
		return nil, err
	}
	pods, err := u.fleet.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the pods of this machine: %w", err)
	}
	s.pods = drain.Sort(u.Node, pods, s.nodes)
	if s.held, err = u.held(); err != nil {
		return nil, err
	}
	if u.plane {
		s.members, err = u.fleet.members(ctx)
	}
	slices.SortFunc(s.nodes, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return s, err
}

// rank sorts nodes by when they are upgraded.
func rank(n *corev1.Node) int {
	if _, plane := n.Labels[controlPlaneLabel]; plane {
		return 0
	}
	return 1
}

// room says whether the new files, and copies of the old ones, fit.
func (u *upgrading) room() error {
	if u.Package == "" {
		return nil
	}
	_, size, err := u.payload()
	if err != nil {
		return err
	}
	for dir, need := range map[string]uint64{upgradeDir: size + leastDisk, u.programs(): 2 * size} {
		free, err := u.host.Free(u.at(dir))
		if err != nil {
			return err
		}
		if free < need {
			return fmt.Errorf("only %d MiB are free for %s: %d are needed", free>>20, dir, need>>20)
		}
	}
	return nil
}

// installable asks the package manager whether it would take the package, and
// nothing beside it.
func (u *upgrading) installable(ctx context.Context) error {
	if !strings.HasSuffix(u.Package, ".deb") {
		return nil
	}
	file, err := filepath.Abs(u.Package)
	if err != nil {
		return err
	}
	out, err := u.host.Run(ctx, "apt-get", "install", "--simulate", "--no-install-recommends", file)
	if err != nil {
		return err
	}
	var missing []string
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "Inst" && words[1] != "podium" {
			missing = append(missing, words[1])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the package needs %s", strings.Join(missing, ", "))
	}
	return nil
}

// judge finds all that is in the way.
func (s *survey) judge() (all []finding) {
	for _, rule := range []func(*survey) []finding{judgeVersions, judgeOrder, judgeNodes, judgeServers, judgeMembers, judgeCertificates, judgePods, judgeFiles} {
		all = append(all, rule(s)...)
	}
	return all
}

// versions are those of all daemons that the cluster knows, by who runs them.
func (s *survey) versions() (out []struct{ who, version string }) {
	add := func(who, version string) {
		out = append(out, struct{ who, version string }{who, version})
	}
	for _, n := range s.nodes {
		add("the kubelet of "+n.Name, n.Status.NodeInfo.KubeletVersion)
	}
	for _, v := range s.servers {
		if v.problem == "" {
			add("the apiserver at "+v.address, v.version)
		}
	}
	return out
}

// judgeVersions: daemons speak with those of the next minor version and those
// of the one before. What is stored by a newer one, an older cannot read.
func judgeVersions(s *survey) (out []finding) {
	to, err := version.Parse(s.to)
	if err != nil {
		return []finding{{check: "version", text: err.Error(), do: "use a package of Podium"}}
	}
	for _, d := range s.versions() {
		have, err := version.Parse(d.version)
		switch {
		case err != nil:
			out = append(out, finding{check: "version", text: fmt.Sprintf("%s: %v", d.who, err), do: "wait until it runs"})
		case to.Major != have.Major || to.MinorsFrom(have) > 1 || to.MinorsFrom(have) < -1:
			out = append(out, finding{check: "skew", text: fmt.Sprintf("%s is %s: more than one minor version from %s", d.who, d.version, s.to), do: "upgrade all machines to the version between, first"})
		case to.Compare(have) < 0 && (s.plane || d.who == "the kubelet of "+s.node):
			out = append(out, finding{check: "downgrade", text: fmt.Sprintf("%s is %s, newer than %s", d.who, d.version, s.to), do: "use a package at least as new; back to an older one leads podium restore, of a backup from then"})
		}
	}
	return out
}

// judgeOrder: a kubelet must not be newer than the apiserver it asks.
func judgeOrder(s *survey) (out []finding) {
	if s.plane {
		return nil
	}
	for _, v := range s.servers {
		if v.problem == "" && older(v.version, s.to) {
			out = append(out, finding{check: "order", text: fmt.Sprintf("the apiserver at %s is %s still: control planes come first", v.address, v.version), do: "podium upgrade apply there"})
		}
	}
	return out
}

func older(a, b string) bool {
	x, errX := version.Parse(a)
	y, errY := version.Parse(b)
	return errX == nil && errY == nil && x.Compare(y) < 0
}

// judgeNodes: nothing is taken away from a cluster that lacks something.
func judgeNodes(s *survey) (out []finding) {
	found := false
	for _, n := range s.nodes {
		found = found || n.Name == s.node
		if to := n.Annotations[upgradeNote]; to != "" && n.Name != s.node {
			out = append(out, finding{check: "interrupted", text: fmt.Sprintf("the upgrade of %s to %s was interrupted", n.Name, to), do: "podium upgrade apply there (or, if it is gone for good: podium delete node " + n.Name + ")"})
		}
		err := poll.NodeReady(n)
		if err == nil {
			continue
		}
		out = append(out, finding{
			check: "nodes", text: fmt.Sprintf("node %s is not Ready: %v", n.Name, err), warn: rank(n) == 1 && n.Name != s.node,
			do: "podium describe node " + n.Name + "; there: journalctl -u kubelet",
		})
	}
	if !found {
		out = append(out, finding{check: "nodes", text: "the cluster has no node " + s.node, do: "systemctl restart kubelet, or join it"})
	}
	return out
}

func judgeServers(s *survey) (out []finding) {
	for _, v := range s.servers {
		if v.problem != "" {
			out = append(out, finding{check: "servers", text: fmt.Sprintf("the apiserver at %s does not answer: %s", v.address, v.problem), do: "there: journalctl -u kube-apiserver"})
		}
	}
	return out
}

// judgeMembers: a member less than there are may be one too few.
func judgeMembers(s *survey) (out []finding) {
	for _, e := range s.members {
		if e.state != "healthy" || e.role == "learner" {
			out = append(out, finding{check: "etcd", text: fmt.Sprintf("etcd's member %s is a %s, %s", e.name, e.role, e.state), do: "podium etcd list; there: journalctl -u etcd"})
		}
	}
	return out
}

func judgeCertificates(s *survey) (out []finding) {
	for _, h := range s.held {
		left := h.until.Sub(s.now)
		switch {
		case h.problem != "":
			out = append(out, finding{check: "certificates", text: h.name + ": " + h.problem, do: "podium certs check"})
		case left <= 0:
			out = append(out, finding{check: "certificates", text: "the certificate " + h.name + " has ended", do: "podium certs renew"})
		case left < soon/2:
			out = append(out, finding{check: "certificates", text: fmt.Sprintf("the certificate %s ends in %s", h.name, days(left)), do: "podium certs renew", warn: true})
		}
	}
	return out
}

func judgePods(s *survey) (out []finding) {
	if !s.drained {
		return nil
	}
	for _, p := range s.pods.Lost {
		out = append(out, finding{
			check: "pods", text: fmt.Sprintf("pod %s/%s has no controller that would make it anew elsewhere", p.Namespace, p.Name),
			do: "delete it, let it run on (--drain=false), or let it go (--ignore-preflight-errors=pods)",
		})
	}
	return out
}

func judgeFiles(s *survey) (out []finding) {
	if s.room != nil {
		out = append(out, finding{check: "disk", text: s.room.Error(), do: "make room, or mount a larger disk there"})
	}
	if s.install != nil {
		out = append(out, finding{check: "package", text: s.install.Error(), do: "install what it needs (apt-get install), then again"})
	}
	return out
}

// refuse is the error of all that is in the way and not ignored.
func (u *upgrading) refuse(s *survey) error {
	var errs []error
	for _, f := range s.judge() {
		if f.warn || slices.Contains(u.Ignore, f.check) || slices.Contains(u.Ignore, "all") {
			fmt.Fprintf(u.Out, "   warning: %s\n", f.text)
			continue
		}
		errs = append(errs, fmt.Errorf("[%s] %s\n    → %s", f.check, f.text, f.do))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("this is in the way; nothing was changed\n%w", errors.Join(errs...))
}

// done says whether this machine's daemons are of the version already.
func (s *survey) done() bool {
	for _, n := range s.nodes {
		if n.Name == s.node && n.Status.NodeInfo.KubeletVersion != s.to {
			return false
		}
	}
	for _, v := range s.servers {
		if s.plane && v.address == s.own && v.version != s.to {
			return false
		}
	}
	return true
}

// first says whether no control plane is of the version yet.
func (s *survey) first() bool {
	return !slices.ContainsFunc(s.servers, func(v server) bool { return v.version == s.to })
}

// print shows what runs, and what is to be done where.
func (s *survey) print(out io.Writer) {
	fmt.Fprintf(out, "%-24s %-14s %-32s %s\n", "NODE", "ROLE", "KUBELET", "STATE")
	for _, n := range s.nodes {
		role, state := "worker", readiness(n)
		if rank(n) == 0 {
			role = "control-plane"
		}
		if n.Spec.Unschedulable {
			state += ", takes no pods"
		}
		if n.Name == s.node {
			state += " (this machine)"
		}
		fmt.Fprintf(out, "%-24s %-14s %-32s %s\n", n.Name, role, n.Status.NodeInfo.KubeletVersion, state)
	}
	fmt.Fprintln(out)
	for _, v := range s.servers {
		fmt.Fprintf(out, "apiserver %-29s %-32s %s\n", v.address, v.version, v.problem)
	}
	for _, e := range s.members {
		fmt.Fprintf(out, "etcd      %-29s %-32s %s\n", e.name, e.role, e.state)
	}
	s.printOrder(out)
}

func (s *survey) printOrder(out io.Writer) {
	var left []*corev1.Node
	for _, n := range s.nodes {
		if older(n.Status.NodeInfo.KubeletVersion, s.to) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		fmt.Fprintf(out, "\nEvery node is at %s.\n", s.to)
		return
	}
	fmt.Fprintf(out, "\nTo %s, in this order, one machine at a time (podium upgrade apply --package … on each):\n", s.to)
	for i, n := range left {
		what := "drained, kubelet and kube-proxy started anew, node Ready"
		if rank(n) == 0 {
			what = "drained, etcd and the control plane's daemons started anew one by one, then kubelet and kube-proxy"
			if i == 0 && s.first() {
				what = "a backup is taken; " + what
			}
		}
		fmt.Fprintf(out, "%3d. %-20s %s\n", i+1, n.Name, what)
	}
	if s.drained {
		fmt.Fprintf(out, "Of this machine's pods %d move, %d stay and run on.\n", len(s.pods.Go), len(s.pods.Stay))
	}
}
