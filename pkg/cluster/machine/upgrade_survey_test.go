package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cluster/drain"
)

const (
	v1 = "v1.36.5+podium.10.aaaaaaa"
	v2 = "v1.36.6+podium.12.bbbbbbb"
)

// wellSurvey is a cluster of two control planes and a worker in which nothing
// is in the way.
func wellSurvey() *survey {
	node := func(name string, plane bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if plane {
			n.Labels[controlPlaneLabel] = ""
		}
		n.Status.NodeInfo.KubeletVersion = v1
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &survey{
		node: "a", plane: true, drained: true, own: "https://a:6443", to: v2, now: now,
		nodes:   []*corev1.Node{node("a", true), node("b", true), node("w", false)},
		servers: []server{{address: "https://a:6443", version: v1}, {address: "https://b:6443", version: v1}},
		members: []member{{"a", "leader", "healthy"}, {"b", "voter", "healthy"}},
		held:    []held{{name: "apiserver", until: now.Add(200 * 24 * time.Hour)}},
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*survey)
		want   []string // the checks; with ? those that only warn
		says   string
	}{
		"Nothing":            {func(s *survey) {}, nil, ""},
		"HalfWayThrough":     {func(s *survey) { s.nodes[1].Status.NodeInfo.KubeletVersion, s.servers[1].version = v2, v2 }, nil, ""},
		"Downgrade":          {func(s *survey) { s.servers[1].version = "v1.36.6+podium.13.ccccccc" }, []string{"downgrade"}, "podium.13"},
		"WorkerIsBehind":     {func(s *survey) { s.node, s.plane = "w", false }, []string{"order", "order"}, "control planes come first"},
		"WorkersTurn":        {func(s *survey) { s.node, s.plane, s.servers[0].version, s.servers[1].version = "w", false, v2, v2 }, nil, ""},
		"TwoMinors":          {func(s *survey) { s.to = "v1.38.0+podium.20.ddddddd" }, []string{"skew", "skew", "skew", "skew", "skew"}, "the version between"},
		"OneMinor":           {func(s *survey) { s.to = "v1.37.0+podium.20.ddddddd" }, nil, ""},
		"OneBehind":          {func(s *survey) { s.nodes[2].Status.NodeInfo.KubeletVersion = "v1.34.0" }, []string{"skew"}, "the kubelet of w is v1.34.0"},
		"NoVersion":          {func(s *survey) { s.nodes[2].Status.NodeInfo.KubeletVersion = "" }, []string{"version"}, "kubelet of w"},
		"PlaneNotReady":      {func(s *survey) { s.nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown }, []string{"nodes"}, "node b is not Ready"},
		"WorkerNotReady":     {func(s *survey) { s.nodes[2].Status.Conditions[0].Status = corev1.ConditionUnknown }, []string{"nodes?"}, "node w is not Ready"},
		"NotInTheCluster":    {func(s *survey) { s.node = "z" }, []string{"nodes"}, "no node z"},
		"AnotherInterrupted": {func(s *survey) { s.nodes[1].Annotations = map[string]string{upgradeNote: v2} }, []string{"interrupted"}, "the upgrade of b"},
		"OwnInterrupted":     {func(s *survey) { s.nodes[0].Annotations = map[string]string{upgradeNote: v2} }, nil, ""},
		"ServerSilent":       {func(s *survey) { s.servers[1] = server{address: "https://b:6443", problem: "refused"} }, []string{"servers"}, "https://b:6443"},
		"MemberUnhealthy":    {func(s *survey) { s.members[1].state = "unhealthy: does not answer" }, []string{"etcd"}, "member b"},
		"MemberLearns":       {func(s *survey) { s.members[1].role = "learner" }, []string{"etcd"}, "learner"},
		"CertificateEnded":   {func(s *survey) { s.held[0].until = s.now.Add(-time.Hour) }, []string{"certificates"}, "podium certs renew"},
		"CertificateEnds":    {func(s *survey) { s.held[0].until = s.now.Add(50 * time.Hour) }, []string{"certificates?"}, "ends in 2d"},
		"CertificateBad":     {func(s *survey) { s.held[0].problem = "holds no certificate" }, []string{"certificates"}, "holds no certificate"},
		"PodsOfNobody":       {func(s *survey) { s.pods = lost("db") }, []string{"pods"}, "default/db"},
		"PodsThatStay":       {func(s *survey) { s.pods, s.drained = lost("db"), false }, nil, ""},
		"DiskFull":           {func(s *survey) { s.room = errors.New("only 3 MiB are free") }, []string{"disk"}, "make room"},
		"Dependencies":       {func(s *survey) { s.install = errors.New("depends on x") }, []string{"package"}, "depends on x"},
		"NotOurs":            {func(s *survey) { s.to = "none" }, []string{"version"}, "package of Podium"},
	} {
		t.Run(name, func(t *testing.T) {
			s := wellSurvey()
			row.change(s)
			var got []string
			text := ""
			for _, f := range s.judge() {
				if !slices.Contains(upgradeChecks, f.check) {
					t.Errorf("%s cannot be ignored", f.check)
				}
				name := f.check
				if f.warn {
					name += "?"
				}
				if f.do == "" {
					t.Errorf("%s: it does not say what to do", f.text)
				}
				got = append(got, name)
				text += f.text + " → " + f.do + "\n"
			}
			if diff := cmp.Diff(row.want, got); diff != "" || !strings.Contains(text, row.says) {
				t.Errorf("in the way (-want +got):\n%s%s", diff, text)
			}
		})
	}
}

func lost(name string) (s drain.Sorted) {
	s.Lost = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}}
	return s
}

// The plan names every machine that is behind, control planes first.
func TestPlanIsShown(t *testing.T) {
	s := wellSurvey()
	var out strings.Builder
	s.print(&out)
	order := []string{"a                        control-plane  " + v1 + "        Ready (this machine)", "w                        worker", "To " + v2, "1. a", "a backup is taken", "2. b", "3. w"}
	at := 0
	for _, part := range order {
		i := strings.Index(out.String()[at:], part)
		if i < 0 {
			t.Fatalf("%q is not where it should be:\n%s", part, out.String())
		}
		at += i
	}
	for _, n := range s.nodes {
		n.Status.NodeInfo.KubeletVersion = v2
	}
	out.Reset()
	s.print(&out)
	if !strings.Contains(out.String(), "Every node is at "+v2) {
		t.Errorf("it says:\n%s", out.String())
	}
}

// What is in the way is an error; what is ignored, or only a warning, is shown.
func TestRefuse(t *testing.T) {
	g := newGround(t, false)
	m, err := newMachine(g.cfg, g)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	m.Out = &out
	u := &upgrading{machine: m}
	s := wellSurvey()
	s.nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown
	s.pods = lost("db")
	err = u.refuse(s)
	if err == nil || !strings.Contains(err.Error(), "[nodes]") || !strings.Contains(err.Error(), "[pods]") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("it says %v", err)
	}
	u.Ignore = []string{"pods", "nodes"}
	if err := u.validate(); err != nil {
		t.Error(err)
	}
	if err := u.refuse(s); err != nil || strings.Count(out.String(), "warning") != 2 {
		t.Errorf("it says %v and\n%s", err, out.String())
	}
	if err := (UpgradeOptions{Ignore: []string{"everything"}}).validate(); err == nil || !strings.Contains(err.Error(), "there are all, certificates") {
		t.Errorf("of a check that is none it says %v", err)
	}
}
