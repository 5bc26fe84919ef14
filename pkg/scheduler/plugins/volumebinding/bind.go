package volumebinding

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

// bindTimeout is how long a pod waits for its claims to be bound; upstream's default.
const bindTimeout = 10 * time.Minute

// Writer makes the writes that bind a claim.
type Writer interface {
	// Reserve makes a volume refer to the claim, if no other claim has it.
	Reserve(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error
	// SelectNode names the node in an annotation of the claim.
	SelectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error
}

// Reserve chooses the volumes of claims that wait for their first pod. Pods that are
// scheduled after this one do not get them.
func (p *Plugin) Reserve(pod *snapshot.Pod, node string) error {
	choices, status := place(p.needs(pod), p.node(node))
	if status != nil {
		return errors.New(status.Reasons[0])
	}
	if len(choices) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chosen[pod.UID] = choices
	for _, c := range choices {
		if c.volume != "" {
			p.assumed[c.volume] = pod.UID
		}
	}
	return nil
}

// Unreserve gives the chosen volumes back.
func (p *Plugin) Unreserve(pod *snapshot.Pod, _ string) { p.forget(pod.UID) }

// PostBind forgets the choice: the claims are bound.
func (p *Plugin) PostBind(_ context.Context, pod *snapshot.Pod, _ string) { p.forget(pod.UID) }

func (s *store) forget(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chosen[pod] {
		if s.assumed[c.volume] == pod {
			delete(s.assumed, c.volume)
		}
	}
	delete(s.chosen, pod)
}

// Waits reports whether Permit may block: for pods whose claims are not bound.
func (p *Plugin) Waits(pod *snapshot.Pod) bool {
	if len(pod.Spec.Volumes) == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chosen[pod.UID]) > 0
}

// Permit binds the pod's claims and waits until they are bound, which may take as long as
// it takes to provision a volume.
func (p *Plugin) Permit(ctx context.Context, pod *snapshot.Pod, node string) error {
	p.mu.Lock()
	choices := p.chosen[pod.UID]
	p.mu.Unlock()
	for _, c := range choices {
		if err := p.write(ctx, c, node); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, c := range choices {
		if err := p.wait(ctx, c, node); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plugin) write(ctx context.Context, c choice, node string) error {
	if c.volume == "" {
		if c.claim.Annotations[volumebinding.SelectedNode] == node {
			return nil
		}
		return p.writer.SelectNode(ctx, c.claim, node)
	}
	p.mu.Lock()
	v := p.volumes[c.volume]
	p.mu.Unlock()
	if v == nil {
		return fmt.Errorf("persistentvolume %q not found", c.volume)
	}
	return p.writer.Reserve(ctx, v, c.claim)
}

// wait blocks until a claim is bound. It fails if the claim is gone, or if its provisioner
// cannot make a volume for the node, which it says by removing the annotation.
func (p *Plugin) wait(ctx context.Context, c choice, node string) error {
	key, named := types.NamespacedName{Namespace: c.claim.Namespace, Name: c.claim.Name}, false
	for {
		p.mu.Lock()
		claim, changed := p.claims[key], p.changed
		p.mu.Unlock()
		switch {
		case claim == nil || claim.UID != c.claim.UID || claim.DeletionTimestamp != nil:
			return fmt.Errorf("persistentvolumeclaim %q not found", key.Name)
		case volumebinding.Bound(claim):
			return nil
		case c.volume == "":
			is := claim.Annotations[volumebinding.SelectedNode] == node
			if named && !is {
				return fmt.Errorf("provisioning failed for PVC %q", key.Name)
			}
			named = named || is
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting for PVC %q to be bound: %w", key.Name, ctx.Err())
		case <-changed:
		}
	}
}
