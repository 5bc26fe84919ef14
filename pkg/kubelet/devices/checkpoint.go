package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/checkpoint"
)

// checkpointName is upstream's name of the file that records who has which device.
const checkpointName = "kubelet_internal_checkpoint"

// checkpointFile is the file. Its structure is upstream's, because monitoring agents read
// it; the checksum is that of the bytes of Data.
type checkpointFile struct {
	Data     json.RawMessage
	Checksum uint32
}

type content struct {
	PodDeviceEntries  []entry
	RegisteredDevices map[string][]string // the healthy devices, by resource
}

// entry is the devices of one resource that a container has.
type entry struct {
	PodUID        types.UID
	ContainerName string
	ResourceName  string
	DeviceIDs     map[int64][]string // by NUMA node
	AllocResp     []byte             // a ContainerAllocateResponse
	PreStart      bool               `json:",omitempty"` // not in upstream's format
}

// noNode is the NUMA node of devices whose node is unknown.
const noNode = -1

// entry returns the record of a grant.
func (g *grant) entry(pod types.UID, container, resource string) (entry, error) {
	e := entry{PodUID: pod, ContainerName: container, ResourceName: resource, DeviceIDs: map[int64][]string{}, PreStart: g.preStart}
	for _, id := range g.ids() {
		nodes := g.devices[id]
		if len(nodes) == 0 {
			nodes = []int64{noNode}
		}
		for _, n := range nodes {
			e.DeviceIDs[n] = append(e.DeviceIDs[n], id)
		}
	}
	var err error
	e.AllocResp, err = proto.Marshal(g.response)
	return e, err
}

// grant returns what an entry records.
func (e *entry) grant() (*grant, error) {
	g := &grant{devices: map[string][]int64{}, response: &api.ContainerAllocateResponse{}, preStart: e.PreStart}
	if err := proto.Unmarshal(e.AllocResp, g.response); err != nil {
		return nil, err
	}
	for _, node := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
		for _, id := range e.DeviceIDs[node] {
			if g.devices[id] = append(g.devices[id], node); node < 0 {
				g.devices[id] = nil
			}
		}
	}
	if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" || len(g.devices) == 0 {
		return nil, errors.New("an entry names no pod, container, resource or device")
	}
	return g, nil
}

// save writes the checkpoint. A crash leaves the old one or the new one.
func (m *Manager) save() error {
	m.disk.Lock()
	defer m.disk.Unlock()
	m.mu.Lock()
	data, err := m.encodeLocked()
	m.stale = false
	m.mu.Unlock()
	if err == nil {
		err = checkpoint.WriteFile(filepath.Join(m.dir(), checkpointName), data)
	}
	if err != nil {
		m.mu.Lock()
		m.stale = true
		m.mu.Unlock()
	}
	return err
}

// encodeLocked returns the checkpoint. It omits reserved devices: their plugin may not have
// prepared them. m.mu is held.
func (m *Manager) encodeLocked() ([]byte, error) {
	c := content{PodDeviceEntries: []entry{}, RegisteredDevices: map[string][]string{}}
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		for _, container := range slices.Sorted(maps.Keys(m.pods[uid])) {
			of := m.pods[uid][container]
			for _, resource := range slices.Sorted(maps.Keys(of)) {
				if of[resource].response == nil {
					continue
				}
				e, err := of[resource].entry(uid, container, resource)
				if err != nil {
					return nil, fmt.Errorf("encode devices of pod %s: %w", uid, err)
				}
				c.PodDeviceEntries = append(c.PodDeviceEntries, e)
			}
		}
	}
	for name, o := range m.resources {
		c.RegisteredDevices[name] = []string{}
		for _, id := range slices.Sorted(maps.Keys(o.devices)) {
			if o.devices[id].healthy {
				c.RegisteredDevices[name] = append(c.RegisteredDevices[name], id)
			}
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(checkpointFile{Data: data, Checksum: checksum(data)})
}

func checksum(data []byte) uint32 {
	h := fnv.New32a()
	h.Write(data)
	return h.Sum32()
}

// decode returns the grants and the resources of a checkpoint.
func decode(data []byte) (pods map[types.UID]containers, resources []string, err error) {
	var f checkpointFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, nil, err
	}
	if checksum(f.Data) != f.Checksum {
		return nil, nil, errors.New("the checksum is wrong")
	}
	var c content
	if err := json.Unmarshal(f.Data, &c); err != nil {
		return nil, nil, err
	}
	m := Manager{pods: map[types.UID]containers{}}
	for i := range c.PodDeviceEntries {
		e := &c.PodDeviceEntries[i]
		g, err := e.grant()
		if err != nil {
			return nil, nil, err
		}
		m.grantLocked(e.PodUID, e.ContainerName, e.ResourceName, g)
	}
	return m.pods, slices.Sorted(maps.Keys(c.RegisteredDevices)), nil
}

// restore reads the checkpoint. One that cannot be read is kept under another name.
func (m *Manager) restore() {
	path := filepath.Join(m.dir(), checkpointName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var names []string
	var pods map[types.UID]containers
	if err == nil {
		pods, names, err = decode(data)
	}
	if err != nil {
		m.cfg.Log.Error("read checkpoint of device plugins failed: running pods get devices again", "error", err, "kept", path+".corrupt")
		_ = os.Rename(path, path+".corrupt")
		return
	}
	m.pods = pods
	for _, name := range names {
		m.resources[name] = &offer{lost: time.Now()}
	}
}
