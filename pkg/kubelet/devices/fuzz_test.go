package devices

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A checkpoint that decodes encodes to one that decodes to the same grants.
func FuzzCheckpoint(f *testing.F) {
	m := Manager{pods: map[types.UID]containers{}, resources: map[string]*offer{"example.com/gpu": {devices: map[string]device{"a": {healthy: true}}}}}
	m.grantLocked("pod", "main", "example.com/gpu", &grant{devices: map[string][]int64{"a": {0, 1}, "b": nil}, response: &api.ContainerAllocateResponse{Envs: map[string]string{"A": "b"}}})
	data, err := m.encodeLocked()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, names, err := decode(data)
		if err != nil {
			return
		}
		m := Manager{pods: pods, resources: map[string]*offer{}}
		for _, n := range names {
			m.resources[n] = &offer{}
		}
		again, err := m.encodeLocked()
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := decode(again)
		if err != nil {
			t.Fatalf("%v in %s", err, again)
		}
		for uid, list := range pods {
			for container, of := range list {
				for resource, g := range of {
					other := next[uid][container][resource]
					if other == nil || len(other.devices) != len(g.devices) || !proto.Equal(other.response, g.response) {
						t.Fatalf("%s %s %s: %v became %v", uid, container, resource, g, other)
					}
				}
			}
		}
	})
}

// What a plugin sends cannot break the kubelet.
func FuzzPluginAnswers(f *testing.F) {
	for _, m := range []proto.Message{
		&api.ListAndWatchResponse{Devices: []*api.Device{{ID: "a", Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: -1}, {ID: 3}}}}, {}}},
		&api.ContainerAllocateResponse{Envs: map[string]string{"A": "b"}, Mounts: []*api.Mount{{}}, Devices: []*api.DeviceSpec{{}}, Annotations: map[string]string{"a": "b"}, CdiDevices: []*api.CDIDevice{{Name: "x"}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var list api.ListAndWatchResponse
		if proto.Unmarshal(data, &list) == nil {
			for id, d := range inventory(list.Devices) {
				if id == "" || len(d.nodes) > 0 && d.nodes[0] < 0 {
					t.Errorf("device %q on %v", id, d.nodes)
				}
			}
		}
		var given api.ContainerAllocateResponse
		if proto.Unmarshal(data, &given) == nil {
			o := merger{log: slog.New(slog.DiscardHandler)}
			o.add(&given)
			once := len(o.Envs) + len(o.Mounts) + len(o.Devices) + len(o.Annotations) + len(o.CDI)
			o.add(&given)
			if twice := len(o.Envs) + len(o.Mounts) + len(o.Devices) + len(o.Annotations) + len(o.CDI); twice != once {
				t.Errorf("the same answer adds %d, then %d", once, twice)
			}
		}
	})
}
