package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const head = "apiVersion: config.podium.dev/v1alpha1\nkind: Cluster\n"

func TestDefaults(t *testing.T) {
	got, err := Decode([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	want := &Cluster{
		Metadata: Metadata{Name: "podium"}, Nodes: []Node{{Role: ControlPlane}},
		Networking:    Networking{IPFamily: "ipv4", PodSubnet: "10.244.0.0/16", ServiceSubnet: "10.96.0.0/16", DNSDomain: "cluster.local", PodNetwork: "routes", APIServerAddress: "127.0.0.1"},
		CloudProvider: CloudNone, PodSecurity: PodSecurityPrivileged,
	}
	want.APIVersion, want.Kind = APIVersion, KindCluster
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("an empty file (-want +got):\n%s", d)
	}
	six, err := Decode([]byte(head + "networking: {ipFamily: ipv6}"))
	if err != nil {
		t.Fatal(err)
	}
	ranges := want.Networking
	ranges.IPFamily, ranges.PodSubnet, ranges.ServiceSubnet = "ipv6", "fd00:10:244::/56", "fd00:10:96::/112"
	if d := cmp.Diff(ranges, six.Networking); d != "" {
		t.Errorf("IPv6 (-want +got):\n%s", d)
	}
	if six, err = Decode([]byte(head + "networking: {podSubnet: 'fd00:1::/56'}")); err != nil || six.Networking.IPFamily != "ipv6" || six.Networking.ServiceSubnet != "fd00:10:96::/112" {
		t.Errorf("a range says the family: %+v, %v", six, err)
	}
	ports, err := Decode([]byte(head + "nodes: [{role: control-plane, extraPortMappings: [{hostPort: 8080, containerPort: 30080}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]PortMapping{{30080, 8080, "127.0.0.1", corev1.ProtocolTCP}}, ports.Nodes[0].ExtraPortMappings); d != "" {
		t.Errorf("a mapped port (-want +got):\n%s", d)
	}
}

func TestEverythingAccepted(t *testing.T) {
	_, err := Decode([]byte(head + `
metadata: {name: ci-1}
networking: {podSubnet: 10.1.0.0/16, serviceSubnet: 10.2.0.0/20, podNetwork: vxlan, apiServerPort: 6443, apiServerAddress: 0.0.0.0, dnsDomain: corp.example}
nodes:
- role: control-plane
  image: localhost/podium/node:v2
  extraPortMappings: [{hostPort: 53, containerPort: 30053, protocol: UDP, listenAddress: "::1"}, {hostPort: 53, containerPort: 30053, listenAddress: "::1"}]
- role: worker
  labels: {topology.kubernetes.io/zone: a, disk: ssd, node.kubernetes.io/x: "1"}
  taints: [{key: gpu, value: "yes", effect: NoSchedule}, {key: gpu, effect: NoExecute}]
  extraMounts: [{hostPath: ./data, containerPath: /data, readOnly: true}]
  kubeReserved: {cpu: 100m, memory: 200Mi}
  systemReserved: {cpu: "1", pid: 100, ephemeral-storage: 1Gi}
`))
	if err != nil {
		t.Error(err)
	}
}

func TestMistakesComeAllAtOnceWithTheirPaths(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"NotOurs":  {"kind: Pod", `this is apiVersion "", kind "Pod": want config.podium.dev/v1alpha1, Cluster`},
		"Newer":    {"apiVersion: config.podium.dev/v1\nkind: Cluster", `this is apiVersion "config.podium.dev/v1", kind "Cluster": want config.podium.dev/v1alpha1, Cluster`},
		"Unknown":  {head + "nodez: []\nnodes: [{role: control-plane, colour: red}]", `unknown field "nodes[0].colour"` + "\n" + `unknown field "nodez"`},
		"NoCloud":  {head + "cloudProvider: none\nnodes: [{role: control-plane, zone: a}]", `nodes[0].zone: Forbidden: only a cloud provider applies it: set the node label topology.kubernetes.io/zone`},
		"Cloud":    {head + "cloudProvider: aws", `cloudProvider: Unsupported value: "aws": supported values: "docker", "none"`},
		"Level":    {head + "podSecurity: strict", `podSecurity: Unsupported value: "strict": supported values: "privileged", "baseline", "restricted"`},
		"NoRoutes": {head + "cloudProvider: none\nnetworking: {podNetwork: cloud}", `networking.podNetwork: Invalid value: "cloud": needs a cloudProvider`},
		"NoLeader": {head + "nodes: [{role: worker}]", `nodes: Invalid value: 0: there must be 1 control plane, or 3 for high availability`},
		"Two":      {head + "nodes: [{role: control-plane}, {role: control-plane}]", `nodes: Invalid value: 2: there must be 1 control plane, or 3 for high availability`},
		"Dual":     {head + "networking: {ipFamily: dual}", `networking.ipFamily: Invalid value: "dual": dual-stack is not available: choose ipv4 or ipv6`},
		"Six": {head + "networking: {ipFamily: ipv6, podSubnet: 'fd00::/64', serviceSubnet: 10.96.0.0/16}\nnodes: [{role: control-plane, extraPortMappings: [{hostPort: 1, containerPort: 1}]}]",
			`nodes[0].extraPortMappings[0].hostPort: Forbidden: the engine leads ports of the host to IPv4 addresses, at which a cluster of family ipv6 does not serve node ports
networking.podSubnet: Invalid value: "fd00::/64": must be from /48 to /62 long
networking.serviceSubnet: Invalid value: "10.96.0.0/16": is of another address family than networking.ipFamily, ipv6`},
		"Many": {head + `
metadata: {name: Big_Name}
nodes:
- role: control-plane
  extraPortMappings: [{hostPort: 8080, containerPort: 30080}, {hostPort: 70000, containerPort: 0, protocol: ICMP, listenAddress: here}]
- role: boss
  taints: [{key: a, effect: Never}, {key: b, effect: NoExecute}, {key: b, effect: NoExecute}]
  labels: {node-role.kubernetes.io/worker: ""}
- extraMounts: [{containerPath: data}, {hostPath: /a, containerPath: /x}, {hostPath: "/b,c", containerPath: /x/}]
  kubeReserved: {gpu: 1, cpu: "-1"}
- role: worker
  extraPortMappings: [{hostPort: 8080, containerPort: 30081}]
networking: {podSubnet: 10.96.1.0/16, serviceSubnet: "fd00::/108", podNetwork: cilium, apiServerPort: -1}
`, `metadata.name: Invalid value: "Big_Name": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
nodes[0].extraPortMappings[1].containerPort: Invalid value: 0: must be between 1 and 65535, inclusive
nodes[0].extraPortMappings[1].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive
nodes[0].extraPortMappings[1].listenAddress: Invalid value: "here": is not an IP address
nodes[0].extraPortMappings[1].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"
nodes[1].role: Unsupported value: "boss": supported values: "control-plane", "worker"
nodes[1].labels[node-role.kubernetes.io/worker]: Invalid value: "node-role.kubernetes.io/worker": a node may not give itself labels below kubernetes.io and k8s.io, but for kubelet.kubernetes.io/, node.kubernetes.io/ and ` + strings.Join(ownLabels, ", ") + `
nodes[1].taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
nodes[1].taints[2]: Duplicate value: "b:NoExecute"
nodes[2].role: Required value: control-plane or worker
nodes[2].extraMounts[0].hostPath: Required value: a folder or file of the host
nodes[2].extraMounts[0].containerPath: Invalid value: "data": must be an absolute path below /
nodes[2].extraMounts[2].containerPath: Duplicate value: "/x/"
nodes[2].extraMounts[2].hostPath: Invalid value: "/b,c": may not contain ',', '"' or line breaks
nodes[2].kubeReserved[cpu]: Invalid value: "-1": must not be negative
nodes[2].kubeReserved[gpu]: Unsupported value: "gpu": supported values: "cpu", "memory", "ephemeral-storage", "pid"
nodes[3].extraPortMappings[0].hostPort: Invalid value: 8080: 127.0.0.1:8080/TCP is taken by nodes[0].extraPortMappings[0].hostPort
networking.podSubnet: Invalid value: "10.96.1.0/16": has bits set behind its length: did you mean 10.96.0.0/16?
networking.serviceSubnet: Invalid value: "fd00::/108": is of another address family than networking.ipFamily, ipv4
networking.podNetwork: Unsupported value: "cilium": supported values: "routes", "vxlan", "cloud", "none"
networking.apiServerPort: Invalid value: -1: must be between 1 and 65535, inclusive`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// FuzzDecode checks that Decode never panics, and accepts what it returned with
// the same result.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "nodes: [{role: control-plane, labels: {a: b}, kubeReserved: {cpu: 1}}, {role: worker, extraMounts: [{hostPath: a, containerPath: /b}]}]"))
	f.Add([]byte(head + "networking: {podSubnet: 10.0.0.0/8}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err != nil {
			t.Errorf("%s\nwas accepted, but not as it was understood: %v\n%s", data, err, text)
		}
	})
}
