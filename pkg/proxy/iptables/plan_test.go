package iptables_test

import (
	"context"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
	"podium/pkg/scheme"
)

var update = flag.Bool("update", false, "write what the planner says into testdata")

// TestPlan runs the cases in testdata: the comment explains the case, "cluster.yaml" is
// the cluster, "options" are the proxy's, "nat" and "filter" the resulting tables
// without the parts that are the same in every case.
func TestPlan(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			story, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := func(name string) string {
				for _, f := range story.Files {
					if f.Name == name {
						return string(f.Data)
					}
				}
				return ""
			}
			planner := plannerOf(t, part("options"))
			set := netrules.NewSet()
			first, last := planner.Base()
			bare := iptables.NewFake()
			set.Put(iptables.First, first)
			set.Put(iptables.Last, last)
			apply(t, bare, planner, set)

			kernel := iptables.NewFake()
			for key, fragment := range plan(t, planner, part("cluster.yaml")) {
				set.Put(key, fragment)
			}
			apply(t, kernel, planner, set)
			for _, table := range []string{"nat", "filter"} {
				got := without(kernel.Dump(table), bare.Dump(table))
				if *update {
					setPart(story, table, got)
					continue
				}
				if diff := cmp.Diff(part(table), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", table, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func setPart(story *txtar.Archive, name, data string) {
	for i := range story.Files {
		if story.Files[i].Name == name {
			story.Files[i].Data = []byte(data)
			return
		}
	}
	story.Files = append(story.Files, txtar.File{Name: name, Data: []byte(data)})
}

// without removes the chains that are the same in common.
func without(all, common string) string {
	same := chunks(common)
	return strings.Join(slices.DeleteFunc(chunks(all), func(c string) bool { return slices.Contains(same, c) }), "")
}

func chunks(dump string) []string {
	var out []string
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, ":") {
			out = append(out, "")
		}
		out[len(out)-1] += line
	}
	return out
}

func apply(t testing.TB, k iptables.Kernel, planner *iptables.Planner, set *netrules.Set) {
	t.Helper()
	if _, err := iptables.NewApplier(k, planner.Hooks()).Sync(context.Background(), set, true); err != nil {
		t.Fatal(err)
	}
}

func plannerOf(t *testing.T, options string) *iptables.Planner {
	p := &iptables.Planner{LocalhostNodePorts: true, Kernel: iptables.AllFeatures()}
	for _, o := range strings.Fields(options) {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "cluster-cidr":
			p.PodTraffic, p.NotPodTraffic = "-s "+value, "! -s "+value
		case "ipv6":
			p.Family = services.IPv6
		case "masquerade-all":
			p.MasqueradeAll = true
		case "nodeport-addresses":
			p.NodePortAddresses = append(p.NodePortAddresses, netip.MustParsePrefix(value))
		case "no-recent":
			p.Kernel.Recent = false
		case "no-statistic":
			p.Kernel.Statistic = false
		default:
			t.Fatalf("unknown option %q", o)
		}
	}
	return p
}

// plan returns a fragment for each Service of a YAML stream.
func plan(t testing.TB, planner *iptables.Planner, text string) map[string]netrules.Fragment {
	s := scheme.New()
	svcs := map[string]*corev1.Service{}
	slicesOf := map[string][]*discoveryv1.EndpointSlice{}
	for _, doc := range strings.Split(text, "\n---\n") {
		obj, _, err := s.DecodeStrict([]byte(doc), scheme.YAML, nil)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		switch o := obj.(type) {
		case *corev1.Service:
			svcs[o.Namespace+"/"+o.Name] = o
		case *discoveryv1.EndpointSlice:
			key := o.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName]
			slicesOf[key] = append(slicesOf[key], o)
		}
	}
	out := map[string]netrules.Fragment{}
	for key, svc := range svcs {
		model := services.Build(svc, slicesOf[key], services.Node{Name: "here", Zone: "a", Family: planner.Family})
		f := planner.Service(model.Ports)
		if model.HealthCheckPort != 0 {
			planner.HealthPort(&f, key, model.HealthCheckPort)
		}
		out[key] = f
	}
	return out
}
