package upgrade

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
	"podium/pkg/cluster/machine/etcd"
)

const (
	v1 = "v1.36.5+podium.10.aaaaaaa"
	v2 = "v1.36.6+podium.12.bbbbbbb"
)

// wellSurvey returns a cluster of two control planes and a worker in which
// nothing prevents an upgrade.
func wellSurvey() *Survey {
	node := func(name string, plane bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if plane {
			n.Labels[ControlPlaneLabel] = ""
		}
		n.Status.NodeInfo.KubeletVersion = v1
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &Survey{
		Node: "a", Plane: true, Drained: true, Own: "https://a:6443", To: v2, Now: now,
		Nodes:        []*corev1.Node{node("a", true), node("b", true), node("w", false)},
		Servers:      []Server{{Address: "https://a:6443", Version: v1}, {Address: "https://b:6443", Version: v1}},
		Members:      []etcd.Member{{Name: "a", Role: "leader", State: "healthy"}, {Name: "b", Role: "voter", State: "healthy"}},
		Certificates: []Certificate{{Name: "apiserver", Until: now.Add(200 * 24 * time.Hour)}},
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Survey)
		want   []string // names of the checks; a ? marks those that only warn
		says   string
	}{
		"Nothing":            {func(s *Survey) {}, nil, ""},
		"HalfWayThrough":     {func(s *Survey) { s.Nodes[1].Status.NodeInfo.KubeletVersion, s.Servers[1].Version = v2, v2 }, nil, ""},
		"Downgrade":          {func(s *Survey) { s.Servers[1].Version = "v1.36.6+podium.13.ccccccc" }, []string{"downgrade"}, "podium.13"},
		"WorkerIsBehind":     {func(s *Survey) { s.Node, s.Plane = "w", false }, []string{"order", "order"}, "upgrade control planes first"},
		"WorkersTurn":        {func(s *Survey) { s.Node, s.Plane, s.Servers[0].Version, s.Servers[1].Version = "w", false, v2, v2 }, nil, ""},
		"TwoMinors":          {func(s *Survey) { s.To = "v1.38.0+podium.20.ddddddd" }, []string{"skew", "skew", "skew", "skew", "skew"}, "the version in between"},
		"OneMinor":           {func(s *Survey) { s.To = "v1.37.0+podium.20.ddddddd" }, nil, ""},
		"OneBehind":          {func(s *Survey) { s.Nodes[2].Status.NodeInfo.KubeletVersion = "v1.34.0" }, []string{"skew"}, "the kubelet of w is v1.34.0"},
		"NoVersion":          {func(s *Survey) { s.Nodes[2].Status.NodeInfo.KubeletVersion = "" }, []string{"version"}, "kubelet of w"},
		"PlaneNotReady":      {func(s *Survey) { s.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown }, []string{"nodes"}, "node b is not Ready"},
		"WorkerNotReady":     {func(s *Survey) { s.Nodes[2].Status.Conditions[0].Status = corev1.ConditionUnknown }, []string{"nodes?"}, "node w is not Ready"},
		"NotInTheCluster":    {func(s *Survey) { s.Node = "z" }, []string{"nodes"}, "no node z"},
		"AnotherInterrupted": {func(s *Survey) { s.Nodes[1].Annotations = map[string]string{Note: v2} }, []string{"interrupted"}, "the upgrade of b"},
		"OwnInterrupted":     {func(s *Survey) { s.Nodes[0].Annotations = map[string]string{Note: v2} }, nil, ""},
		"ServerSilent":       {func(s *Survey) { s.Servers[1] = Server{Address: "https://b:6443", Problem: "refused"} }, []string{"servers"}, "https://b:6443"},
		"MemberUnhealthy":    {func(s *Survey) { s.Members[1].State = "unhealthy: does not answer" }, []string{"etcd"}, "member b"},
		"MemberLearns":       {func(s *Survey) { s.Members[1].Role = "learner" }, []string{"etcd"}, "learner"},
		"CertificateEnded":   {func(s *Survey) { s.Certificates[0].Until = s.Now.Add(-time.Hour) }, []string{"certificates"}, "podium certs renew"},
		"CertificateEnds":    {func(s *Survey) { s.Certificates[0].Until = s.Now.Add(50 * time.Hour) }, []string{"certificates?"}, "expires in 2d"},
		"CertificateBad":     {func(s *Survey) { s.Certificates[0].Problem = "holds no certificate" }, []string{"certificates"}, "holds no certificate"},
		"PodsOfNobody":       {func(s *Survey) { s.Pods = lost("db") }, []string{"pods"}, "default/db"},
		"PodsThatStay":       {func(s *Survey) { s.Pods, s.Drained = lost("db"), false }, nil, ""},
		"DiskFull":           {func(s *Survey) { s.Room = errors.New("only 3 MiB are free") }, []string{"disk"}, "free space"},
		"Dependencies":       {func(s *Survey) { s.Install = errors.New("depends on x") }, []string{"package"}, "depends on x"},
		"NotOurs":            {func(s *Survey) { s.To = "none" }, []string{"version"}, "package of Podium"},
	} {
		t.Run(name, func(t *testing.T) {
			s := wellSurvey()
			row.change(s)
			var got []string
			text := ""
			for _, f := range s.Judge() {
				if !slices.Contains(Checks(), f.Check) {
					t.Errorf("%s cannot be ignored", f.Check)
				}
				name := f.Check
				if f.Warn {
					name += "?"
				}
				if f.Do == "" {
					t.Errorf("%s: it does not say what to do", f.Text)
				}
				got = append(got, name)
				text += f.Text + " → " + f.Do + "\n"
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

// The plan lists every machine with an older version, control planes first.
func TestPlanIsShown(t *testing.T) {
	s := wellSurvey()
	var out strings.Builder
	s.Print(&out)
	order := []string{"a                        control-plane  " + v1 + "        Ready (this machine)", "w                        worker", "To " + v2, "1. a", "a backup is taken", "2. b", "3. w"}
	at := 0
	for _, part := range order {
		i := strings.Index(out.String()[at:], part)
		if i < 0 {
			t.Fatalf("%q is not where it should be:\n%s", part, out.String())
		}
		at += i
	}
	for _, n := range s.Nodes {
		n.Status.NodeInfo.KubeletVersion = v2
	}
	out.Reset()
	s.Print(&out)
	if !strings.Contains(out.String(), "Every node is at "+v2) {
		t.Errorf("it says:\n%s", out.String())
	}
}
