package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Prepare prepares the claims of a pod, before its sandbox is created. It does not repeat
// what this process has prepared. After an error it may be called again; the pod holds
// the claims, and Unprepare releases them. It blocks while another pod's call prepares or
// unprepares one of the claims.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) (err error) {
	if !Uses(pod) {
		return nil
	}
	defer m.Metrics.observe("PrepareResources", time.Now(), &err)
	objects, err := m.read(ctx, pod)
	if err != nil {
		return err
	}
	uids := map[types.UID]bool{}
	for _, c := range objects {
		uids[c.UID] = true
	}
	unlock, err := m.locks.lock(ctx, uids)
	if err != nil {
		return err
	}
	defer unlock()
	todo, err := m.hold(pod, objects)
	if err != nil {
		return err
	}
	return m.each(todo, func(p *plugin, claims []*drapb.Claim) error { return m.prepareWith(ctx, p, claims) })
}

// read reads the pod's claims and verifies that the pod may use them.
func (m *Manager) read(ctx context.Context, pod *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	names, err := claimNames(pod)
	if err != nil {
		return nil, err
	}
	var out []*resourcev1.ResourceClaim
	for _, name := range names {
		c, err := m.API.ResourceClaim(ctx, pod.Namespace, name)
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
		}
		if err := verify(pod, c); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o *resourcev1.ResourceClaim) bool { return o.UID == c.UID }) {
			out = append(out, c)
		}
	}
	return out, nil
}

// verify returns why a pod must not use a claim.
func verify(pod *corev1.Pod, c *resourcev1.ResourceClaim) error {
	if generated(pod, c.Name) && !metav1.IsControlledBy(c, pod) {
		return fmt.Errorf("ResourceClaim %s was not created for pod %s (pod is not owner)", c.Name, pod.Name)
	}
	if c.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s is not allocated", c.Name)
	}
	if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return r.APIGroup == "" && r.Resource == "pods" && r.UID == pod.UID
	}) {
		return fmt.Errorf("pod %s(%s) is not allowed to use ResourceClaim %s(%s)", pod.Name, pod.UID, c.Name, c.UID)
	}
	return nil
}

// generated reports whether a claim was created for the pod: from a template, or for its
// extended resources.
func generated(pod *corev1.Pod, claim string) bool {
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName == claim {
		return true
	}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if name, err := claimName(pod, entry); err == nil && name == claim && entry.ResourceClaimName == nil {
			return true
		}
	}
	return false
}

// work is what drivers are asked for, by name.
type work map[string]*batch

type batch struct {
	plugin *plugin
	claims []*drapb.Claim
}

func (w work) add(p *plugin, c *claim) {
	if w[p.Name] == nil {
		w[p.Name] = &batch{plugin: p}
	}
	w[p.Name].claims = append(w[p.Name].claims, &drapb.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
}

// hold records that the pod uses the claims, and returns what is to be prepared. It
// records nothing if a driver is not there: then nothing has to be unprepared.
func (m *Manager) hold(pod *corev1.Pod, objects []*resourcev1.ResourceClaim) (work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	todo, held := work{}, make([]*claim, 0, len(objects))
	for _, o := range objects {
		c, err := m.recordLocked(o)
		if err != nil {
			return nil, err
		}
		held = append(held, c)
		for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
			if c.Drivers[driver].fresh {
				continue
			}
			p, err := m.pick(driver)
			if err != nil {
				return nil, err
			}
			todo.add(p, c)
		}
	}
	for _, c := range held {
		if !c.usedBy(pod.UID) {
			c.Pods = append(c.Pods, pod.UID)
			m.changed = true
		}
		for driver, p := range c.Drivers {
			if todo[driver] != nil && !p.Called {
				p.Called, m.changed = true, true
			}
		}
		m.claims[c.UID] = c
	}
	return todo, m.saveLocked()
}

// recordLocked returns the record of a claim, or a new one. It fails while pods that are
// being stopped use another claim of that name, or the claim with other devices. m.mu is
// held.
func (m *Manager) recordLocked(o *resourcev1.ResourceClaim) (*claim, error) {
	allocated, drivers := allocation(o)
	if c := m.claims[o.UID]; c != nil {
		if !slices.Equal(c.Allocated, allocated) {
			return nil, fmt.Errorf("ResourceClaim %s is still prepared with other devices (previous pod not stopped yet?)", o.Name)
		}
		return c, nil
	}
	for _, c := range m.claims {
		if c.Namespace == o.Namespace && c.Name == o.Name {
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod not stopped yet?)", c.Name, c.UID)
		}
	}
	return &claim{UID: o.UID, Namespace: o.Namespace, Name: o.Name, Allocated: allocated, Drivers: drivers}, nil
}

// allocation returns the devices of a claim, sorted, and their drivers.
func allocation(o *resourcev1.ResourceClaim) ([]string, map[string]*part) {
	var devices []string
	drivers := map[string]*part{}
	for i := range o.Status.Allocation.Devices.Results {
		r := &o.Status.Allocation.Devices.Results[i]
		id := []string{r.Request, r.Driver, r.Pool, r.Device}
		if r.ShareID != nil {
			id = append(id, string(*r.ShareID))
		}
		devices = append(devices, strings.Join(id, " "))
		drivers[r.Driver] = &part{}
	}
	slices.Sort(devices)
	return devices, drivers
}

// each calls all drivers at once and joins their errors.
func (m *Manager) each(todo work, call func(*plugin, []*drapb.Claim) error) error {
	var mu sync.Mutex
	var running sync.WaitGroup
	var errs []error
	for _, b := range todo {
		running.Go(func() {
			if err := call(b.plugin, b.claims); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("DRA driver %s: %w", b.plugin.Name, err))
				mu.Unlock()
			}
		})
	}
	running.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// prepareWith asks a driver to prepare claims, and records what it has prepared.
func (m *Manager) prepareWith(ctx context.Context, p *plugin, claims []*drapb.Claim) error {
	res, err := p.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims})
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	made, err := preparedDevices(claims, res)
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, devices := range made {
		*m.claims[uid].Drivers[p.Name] = part{Called: true, Prepared: true, Devices: devices, fresh: true}
		m.changed = true
	}
	return errors.Join(err, m.saveLocked())
}
