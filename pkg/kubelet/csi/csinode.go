package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/plugins"
)

// nodeIDs is the annotation of a Node with its ids in the drivers, as JSON.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// writeAttempts is how often a write is repeated when it conflicts with another one.
const writeAttempts = 5

// Register asks a driver about the node, writes that to the CSINode and the Node, and from
// then on mounts volumes with it.
func (d *Driver) Register(ctx context.Context, p plugins.Plugin) error {
	if !slices.ContainsFunc(p.Versions, supported) {
		return fmt.Errorf("none of the CSI versions reported by the driver %s are supported: %q", p.Name, p.Versions)
	}
	if d.InTree[p.Name] != nil {
		return fmt.Errorf("the kubelet has the driver %s itself", p.Name)
	}
	s, err := d.dial(p)
	if err != nil {
		return err
	}
	defer s.close()
	info, err := s.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetInfo of %s: %w", p.Name, err)
	}
	if info.NodeId == "" {
		return fmt.Errorf("NodeGetInfo of %s: the driver returned no node id", p.Name)
	}
	d.node.Lock()
	defer d.node.Unlock()
	entry, labels := nodeDriver(p.Name, info), info.GetAccessibleTopology().GetSegments()
	if err := d.updateNode(ctx, p.Name, info.NodeId, labels); err != nil {
		return fmt.Errorf("write the Node for %s: %w", p.Name, err)
	}
	if err := d.updateCSINode(ctx, p.Name, entry); err != nil {
		return fmt.Errorf("write the CSINode for %s: %w", p.Name, err)
	}
	d.mu.Lock()
	d.drivers[p.Name] = p
	d.mu.Unlock()
	select {
	case d.uses.wake <- struct{}{}: // volumes may wait for the driver to be unstaged
	default:
	}
	return nil
}

// supported reports whether the kubelet speaks a version of CSI: any of version 1.
func supported(version string) bool {
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n == 1
}

// Deregister forgets a driver, unless another plugin has taken its place.
func (d *Driver) Deregister(ctx context.Context, p plugins.Plugin) error {
	d.node.Lock()
	defer d.node.Unlock()
	d.mu.Lock()
	have, ok := d.drivers[p.Name]
	ours := !ok || have.Socket == p.Socket
	if ours {
		delete(d.drivers, p.Name)
	}
	d.mu.Unlock()
	if !ours {
		return nil
	}
	return errors.Join(d.updateCSINode(ctx, p.Name, nil), d.updateNode(ctx, p.Name, "", nil))
}

// nodeDriver returns a driver's entry in the CSINode.
func nodeDriver(driver string, info *spec.NodeGetInfoResponse) *storagev1.CSINodeDriver {
	out := &storagev1.CSINodeDriver{Name: driver, NodeID: info.NodeId, TopologyKeys: slices.Sorted(maps.Keys(info.GetAccessibleTopology().GetSegments()))}
	if n := info.MaxVolumesPerNode; n > 0 {
		out.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(n, math.MaxInt32)))}
	}
	return out
}

// updateNode sets the driver's id of the node in the annotation, or removes it ("" ), and
// adds the driver's topology labels.
func (d *Driver) updateNode(ctx context.Context, driver, nodeID string, labels map[string]string) error {
	return retry(ctx, func() error {
		n, err := d.API.GetNode(ctx, d.NodeName)
		if err != nil {
			return err
		}
		patch, err := nodePatch(n, driver, nodeID, labels)
		if err != nil || patch == nil {
			return err
		}
		return d.API.PatchNode(ctx, d.NodeName, patch)
	})
}

// nodePatch returns the patch of a Node for updateNode, nil if nothing changes. A label
// that has another value is an error: two drivers disagree about where the node is.
func nodePatch(n *corev1.Node, driver, nodeID string, labels map[string]string) ([]byte, error) {
	ids := map[string]string{}
	if text := n.Annotations[nodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", nodeIDs, err)
		}
	}
	for key, value := range labels {
		if have, ok := n.Labels[key]; ok && have != value {
			return nil, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, value, key, have)
		}
	}
	added := maps.Clone(labels)
	maps.DeleteFunc(added, func(key, value string) bool { return n.Labels[key] == value })
	if ids[driver] == nodeID && len(added) == 0 {
		return nil, nil
	}
	var annotation any // nil removes it
	if ids[driver] = nodeID; nodeID == "" {
		delete(ids, driver)
	}
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		annotation = string(text)
	}
	meta := map[string]any{"resourceVersion": n.ResourceVersion, "annotations": map[string]any{nodeIDs: annotation}}
	if len(added) > 0 {
		meta["labels"] = added
	}
	return json.Marshal(map[string]any{"metadata": meta})
}

// updateCSINode sets the entry of a driver, or removes it (nil).
func (d *Driver) updateCSINode(ctx context.Context, driver string, entry *storagev1.CSINodeDriver) error {
	return retry(ctx, func() error {
		n, err := d.csiNode(ctx)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(n.Spec.Drivers), func(e storagev1.CSINodeDriver) bool { return e.Name == driver })
		i := slices.IndexFunc(n.Spec.Drivers, func(e storagev1.CSINodeDriver) bool { return e.Name == driver })
		switch {
		case i < 0 && entry == nil, i >= 0 && entry != nil && apiequality.Semantic.DeepEqual(n.Spec.Drivers[i], *entry):
			return nil
		case i >= 0 && entry != nil && !sameIdentity(n.Spec.Drivers[i], *entry):
			// The entry of a driver is immutable; a new one can take its place.
			n.Spec.Drivers = others
			if err := d.API.UpdateCSINode(ctx, n); err != nil {
				return err
			}
			if n, err = d.csiNode(ctx); err != nil {
				return err
			}
		}
		if n.Spec.Drivers = others; entry != nil {
			n.Spec.Drivers = append(others, *entry)
		}
		return d.API.UpdateCSINode(ctx, n)
	})
}

func sameIdentity(a, b storagev1.CSINodeDriver) bool {
	a.Allocatable, b.Allocatable = nil, nil
	return apiequality.Semantic.DeepEqual(a, b)
}

// csiNode returns the node's CSINode. It creates a missing one, which belongs to the Node.
func (d *Driver) csiNode(ctx context.Context) (*storagev1.CSINode, error) {
	n, err := d.API.GetCSINode(ctx, d.NodeName)
	if !apierrors.IsNotFound(err) {
		return n, err
	}
	node, err := d.API.GetNode(ctx, d.NodeName)
	if err != nil {
		return nil, err
	}
	fresh := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: d.NodeName, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}}
	if err := d.API.CreateCSINode(ctx, fresh); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return d.API.GetCSINode(ctx, d.NodeName)
}

// createCSINode creates the node's CSINode once the Node exists: a scheduler that finds
// none does not know yet which drivers the node has.
func (d *Driver) createCSINode(ctx context.Context) {
	if d.Node.Await(ctx, func(*corev1.Node) bool { return true }) != nil {
		return
	}
	again := backoff.Backoff{Initial: firstUnstage, Max: lastUnstage}
	for ctx.Err() == nil {
		_, err := d.csiNode(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			d.Log.Warn("create CSINode failed", "error", err)
		}
		_ = again.Wait(ctx)
	}
}

// retry repeats a write while it conflicts with another one.
func retry(ctx context.Context, write func() error) error {
	var err error
	for range writeAttempts {
		if err = write(); !apierrors.IsConflict(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}
