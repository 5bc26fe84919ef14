package upgrade

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/drain"
	"podium/pkg/cluster/machine/etcd"
	"podium/pkg/cluster/poll"
	"podium/pkg/version"
)

// Survey is the state of the machine and the cluster that decides whether an
// upgrade is allowed.
type Survey struct {
	Node    string // name of this machine's node
	Plane   bool   // whether this machine is a control plane
	Drained bool   // whether the node will be drained
	Own     string // URL of this machine's apiserver
	To      string // version after the upgrade

	Nodes        []*corev1.Node
	Pods         drain.Sorted // of this machine
	Servers      []Server
	Members      []etcd.Member // of etcd
	Certificates []Certificate // of this machine
	Now          time.Time
	Room         error // not nil if the disk lacks space for the files
	Install      error // not nil if the package cannot be installed
}

// Server is an apiserver with its address, and its version or the reason why
// that is unknown.
type Server struct{ Address, Version, Problem string }

// Certificate is a certificate of this machine; Problem is not empty if it cannot
// be used.
type Certificate struct {
	Name, Problem string
	Until         time.Time
}

// Note is the annotation of a node that is being upgraded; its value is the new
// version.
const Note = "podium.dev/upgrading-to"

// ControlPlaneLabel is the label of control planes' nodes.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// expiresSoon is the remaining lifetime of a certificate below which the upgrade
// warns.
const expiresSoon = 15 * 24 * time.Hour

// Finding is a reason against an upgrade.
type Finding struct {
	Check string // name of the check, for --ignore-preflight-errors
	Text  string
	Do    string // the remedy
	Warn  bool   // the finding does not prevent the upgrade
}

// Checks returns the names of all checks, and "all".
func Checks() []string {
	return []string{"all", "certificates", "disk", "downgrade", "etcd", "interrupted", "nodes", "order", "package", "pods", "servers", "skew", "version"}
}

// Sort sorts nodes in the order of their upgrade: control planes before workers.
func Sort(nodes []*corev1.Node) {
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
}

// Readiness returns "Ready" or "not Ready".
func Readiness(n *corev1.Node) string {
	if poll.NodeReady(n) == nil {
		return "Ready"
	}
	return "not Ready"
}

func rank(n *corev1.Node) int {
	if _, plane := n.Labels[ControlPlaneLabel]; plane {
		return 0
	}
	return 1
}

// Judge returns all findings. It does no I/O.
func (s *Survey) Judge() (all []Finding) {
	for _, rule := range []func(*Survey) []Finding{judgeVersions, judgeOrder, judgeNodes, judgeServers, judgeMembers, judgeCertificates, judgePods, judgeFiles} {
		all = append(all, rule(s)...)
	}
	return all
}

// versions returns the versions of all daemons that the cluster reports, with a
// description of each daemon.
func (s *Survey) versions() (out []struct{ daemon, version string }) {
	add := func(daemon, version string) {
		out = append(out, struct{ daemon, version string }{daemon, version})
	}
	for _, n := range s.Nodes {
		add("the kubelet of "+n.Name, n.Status.NodeInfo.KubeletVersion)
	}
	for _, v := range s.Servers {
		if v.Problem == "" {
			add("the apiserver at "+v.Address, v.Version)
		}
	}
	return out
}

// judgeVersions enforces the version skew policy of one minor version, and
// refuses a downgrade: an older version may not be able to read what a newer
// one has stored.
func judgeVersions(s *Survey) (out []Finding) {
	to, err := version.Parse(s.To)
	if err != nil {
		return []Finding{{Check: "version", Text: err.Error(), Do: "use a package of Podium"}}
	}
	for _, d := range s.versions() {
		have, err := version.Parse(d.version)
		switch {
		case err != nil:
			out = append(out, Finding{Check: "version", Text: fmt.Sprintf("%s: %v", d.daemon, err), Do: "wait until it runs"})
		case to.Major != have.Major || to.MinorsFrom(have) > 1 || to.MinorsFrom(have) < -1:
			out = append(out, Finding{Check: "skew", Text: fmt.Sprintf("%s is %s: more than one minor version from %s", d.daemon, d.version, s.To), Do: "upgrade all machines to the version in between first"})
		case to.Compare(have) < 0 && (s.Plane || d.daemon == "the kubelet of "+s.Node):
			out = append(out, Finding{Check: "downgrade", Text: fmt.Sprintf("%s is %s, newer than %s", d.daemon, d.version, s.To), Do: "use a package at least as new; to return to an older version, restore a backup of it (podium restore)"})
		}
	}
	return out
}

// judgeOrder refuses to upgrade a worker before the control planes: a kubelet
// must not be newer than its apiserver.
func judgeOrder(s *Survey) (out []Finding) {
	if s.Plane {
		return nil
	}
	for _, v := range s.Servers {
		if v.Problem == "" && older(v.Version, s.To) {
			out = append(out, Finding{Check: "order", Text: fmt.Sprintf("the apiserver at %s is %s still: upgrade control planes first", v.Address, v.Version), Do: "podium upgrade apply there"})
		}
	}
	return out
}

func older(a, b string) bool {
	x, errX := version.Parse(a)
	y, errY := version.Parse(b)
	return errX == nil && errY == nil && x.Compare(y) < 0
}

// judgeNodes reports nodes that are not Ready or whose upgrade was interrupted:
// an upgrade must not reduce the capacity further.
func judgeNodes(s *Survey) (out []Finding) {
	found := false
	for _, n := range s.Nodes {
		found = found || n.Name == s.Node
		if to := n.Annotations[Note]; to != "" && n.Name != s.Node {
			out = append(out, Finding{Check: "interrupted", Text: fmt.Sprintf("the upgrade of %s to %s was interrupted", n.Name, to), Do: "podium upgrade apply there (or, if it is gone for good: podium delete node " + n.Name + ")"})
		}
		err := poll.NodeReady(n)
		if err == nil {
			continue
		}
		out = append(out, Finding{
			Check: "nodes", Text: fmt.Sprintf("node %s is not Ready: %v", n.Name, err), Warn: rank(n) == 1 && n.Name != s.Node,
			Do: "podium describe node " + n.Name + "; there: journalctl -u kubelet",
		})
	}
	if !found {
		out = append(out, Finding{Check: "nodes", Text: "the cluster has no node " + s.Node, Do: "systemctl restart kubelet, or join it"})
	}
	return out
}

func judgeServers(s *Survey) (out []Finding) {
	for _, v := range s.Servers {
		if v.Problem != "" {
			out = append(out, Finding{Check: "servers", Text: fmt.Sprintf("the apiserver at %s does not answer: %s", v.Address, v.Problem), Do: "there: journalctl -u kube-apiserver"})
		}
	}
	return out
}

// judgeMembers reports members of etcd that are not healthy: without this
// machine's member, etcd could lose its quorum.
func judgeMembers(s *Survey) (out []Finding) {
	for _, e := range s.Members {
		if e.State != "healthy" || e.Role == "learner" {
			out = append(out, Finding{Check: "etcd", Text: fmt.Sprintf("etcd's member %s is a %s, %s", e.Name, e.Role, e.State), Do: "podium etcd list; there: journalctl -u etcd"})
		}
	}
	return out
}

func judgeCertificates(s *Survey) (out []Finding) {
	for _, h := range s.Certificates {
		left := h.Until.Sub(s.Now)
		switch {
		case h.Problem != "":
			out = append(out, Finding{Check: "certificates", Text: h.Name + ": " + h.Problem, Do: "podium certs check"})
		case left <= 0:
			out = append(out, Finding{Check: "certificates", Text: "the certificate " + h.Name + " has expired", Do: "podium certs renew"})
		case left < expiresSoon:
			out = append(out, Finding{Check: "certificates", Text: fmt.Sprintf("the certificate %s expires in %dd", h.Name, int(left.Hours()/24)), Do: "podium certs renew", Warn: true})
		}
	}
	return out
}

func judgePods(s *Survey) (out []Finding) {
	if !s.Drained {
		return nil
	}
	for _, p := range s.Pods.Lost {
		out = append(out, Finding{
			Check: "pods", Text: fmt.Sprintf("pod %s/%s has no controller that would replace it on another node", p.Namespace, p.Name),
			Do: "delete it, keep it running (--drain=false), or evict it (--ignore-preflight-errors=pods)",
		})
	}
	return out
}

func judgeFiles(s *Survey) (out []Finding) {
	if s.Room != nil {
		out = append(out, Finding{Check: "disk", Text: s.Room.Error(), Do: "free space, or mount a larger disk there"})
	}
	if s.Install != nil {
		out = append(out, Finding{Check: "package", Text: s.Install.Error(), Do: "install what it needs (apt-get install), then again"})
	}
	return out
}

// Done reports whether this machine's daemons already have the new version.
func (s *Survey) Done() bool {
	for _, n := range s.Nodes {
		if n.Name == s.Node && n.Status.NodeInfo.KubeletVersion != s.To {
			return false
		}
	}
	for _, v := range s.Servers {
		if s.Plane && v.Address == s.Own && v.Version != s.To {
			return false
		}
	}
	return true
}

// First reports whether no control plane has the new version yet.
func (s *Survey) First() bool {
	return !slices.ContainsFunc(s.Servers, func(v Server) bool { return v.Version == s.To })
}

// Print writes the present versions and the order of the upgrade.
func (s *Survey) Print(out io.Writer) {
	fmt.Fprintf(out, "%-24s %-14s %-32s %s\n", "NODE", "ROLE", "KUBELET", "STATE")
	for _, n := range s.Nodes {
		role, state := "worker", Readiness(n)
		if rank(n) == 0 {
			role = "control-plane"
		}
		if n.Spec.Unschedulable {
			state += ", cordoned"
		}
		if n.Name == s.Node {
			state += " (this machine)"
		}
		fmt.Fprintf(out, "%-24s %-14s %-32s %s\n", n.Name, role, n.Status.NodeInfo.KubeletVersion, state)
	}
	fmt.Fprintln(out)
	for _, v := range s.Servers {
		fmt.Fprintf(out, "apiserver %-29s %-32s %s\n", v.Address, v.Version, v.Problem)
	}
	for _, e := range s.Members {
		fmt.Fprintf(out, "etcd      %-29s %-32s %s\n", e.Name, e.Role, e.State)
	}
	s.printOrder(out)
}

// printOrder writes which nodes are left to upgrade, in order.
func (s *Survey) printOrder(out io.Writer) {
	var left []*corev1.Node
	for _, n := range s.Nodes {
		if older(n.Status.NodeInfo.KubeletVersion, s.To) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		fmt.Fprintf(out, "\nEvery node is at %s.\n", s.To)
		return
	}
	fmt.Fprintf(out, "\nTo %s, in this order, one machine at a time (podium upgrade apply --package … on each):\n", s.To)
	for i, n := range left {
		what := "drained, kubelet and kube-proxy restarted, node Ready"
		if rank(n) == 0 {
			what = "drained, etcd and the control plane's daemons restarted one by one, then kubelet and kube-proxy"
			if i == 0 && s.First() {
				what = "a backup is taken; " + what
			}
		}
		fmt.Fprintf(out, "%3d. %-20s %s\n", i+1, n.Name, what)
	}
	if s.Drained {
		fmt.Fprintf(out, "Of this machine's pods %d are evicted and %d stay.\n", len(s.Pods.Go), len(s.Pods.Stay))
	}
}
