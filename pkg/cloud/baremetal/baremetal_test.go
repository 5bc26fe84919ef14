package baremetal

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cloud"
)

const head = "apiVersion: config.podium.dev/v1alpha1\nkind: BareMetalCloud\n"

func TestMachines(t *testing.T) {
	p, err := New(cloud.Setup{Config: []byte(head + `
addressPools: [{addresses: [10.0.0.240-10.0.0.250, "2001:db8::/120"]}]
nodes:
- {name: a, zone: z1, region: north, instanceType: big, addresses: [{address: 10.0.0.1}, {type: Hostname, address: a.example.com}]}
`)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]cloud.Metadata{
		"a": {ProviderID: "baremetal://a", Type: "big", Zone: "z1", Region: "north", Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "a.example.com"}}},
		"stranger": {ProviderID: "baremetal://stranger"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		got, err := p.Instances.Metadata(t.Context(), n)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
		if off, err := p.Instances.Shutdown(t.Context(), n); off || err != nil {
			t.Errorf("%s: off %v, %v", name, off, err)
		}
	}
	if p.LoadBalancers == nil || p.Routes != nil || p.Name != "baremetal" {
		t.Errorf("%+v", p)
	}
}

func TestTheExampleIsRight(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/examples/baremetal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c, pools, err := parse(data); err != nil || len(c.Nodes) != 2 || len(pools) != 2 {
		t.Errorf("%+v %+v %v", c, pools, err)
	}
}

func TestWithoutAddresses(t *testing.T) {
	for _, text := range []string{"", head} {
		p, err := New(cloud.Setup{Config: []byte(text)})
		if err != nil || p.LoadBalancers != nil || p.Instances == nil {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
}

func TestMistakesComeAllAtOnceWithTheirPaths(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"NotOurs": {"apiVersion: config.podium.dev/v1alpha1\nkind: Cluster", `want config.podium.dev/v1alpha1, BareMetalCloud`},
		"NotYAML": {"addressPools: [", "yaml"},
		"Many": {head + `
addressPools:
- {addresses: [10.0.0.9-10.0.0.1, 10.0.0.0/28, ten]}
- {name: default, addresses: [10.0.0.15]}
- {name: No_Name}
colour: red
nodes:
- {name: a, zone: "not a label", addresses: [{address: ten}, {type: Nickname, address: x}]}
- {name: a, region: "-", instanceType: "?", addresses: [{type: Hostname, address: "a b"}]}
- {zone: z}
`, `unknown field "colour"
addressPools[1].name: Duplicate value: "default"
addressPools[2].name: Invalid value: "No_Name"
addressPools[2].addresses: Required value
nodes[0].zone: Invalid value: "not a label"
nodes[0].addresses[0].address: Invalid value: "ten": is not an IP address, and the type is InternalIP
nodes[0].addresses[1].type: Unsupported value: "Nickname"
nodes[1].name: Duplicate value: "a"
nodes[1].region: Invalid value: "-"
nodes[1].instanceType: Invalid value: "?"
nodes[1].addresses[0].address: Invalid value: "a b"
nodes[2].name: Invalid value: ""
addressPools[0].addresses[0]: Invalid value: "10.0.0.9-10.0.0.1": 10.0.0.9 comes after 10.0.0.1
addressPools[0].addresses[2]: Invalid value: "ten": "ten" is not a range of addresses
addressPools[1].addresses[0]: Invalid value: "10.0.0.15": has addresses in common with addressPools[0].addresses[1], 10.0.0.0-10.0.0.15`},
	} {
		_, err := New(cloud.Setup{Config: []byte(tc.text)})
		for _, line := range strings.Split(tc.want, "\n") {
			if err == nil || !strings.Contains(err.Error(), line) {
				t.Errorf("%s: no line %q in:\n%v", name, line, err)
			}
		}
	}
}

// FuzzConfig parses arbitrary configurations: they are refused, or yield pools that do not
// overlap.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(head + "addressPools: [{addresses: [10.0.0.240/29, 10.0.0.1-10.0.0.9]}]\nnodes: [{name: a}]"))
	f.Add([]byte(head + "addressPools: [{addresses: [\"::/0\"]}]"))
	f.Add([]byte("kind: x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, pools, err := parse(data)
		if err != nil {
			return
		}
		for i, p := range pools {
			for j, q := range pools {
				for _, r := range p.Ranges {
					if i != j && (q.Contains(r.First) || q.Contains(r.Last)) {
						t.Errorf("%s is in two pools", r)
					}
				}
			}
		}
	})
}
