package node

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// Graph records which objects the pods of each node refer to. It is a watch
// cache follower of pods, and safe for concurrent use.
type Graph struct {
	mu    sync.RWMutex
	pods  map[types.NamespacedName]*bound
	needs map[string]map[ref]int // by node: the number of references from its pods

	volumes  map[string]volume // persistent volumes, by name
	attached map[string]string // by VolumeAttachment: its node
}

// volume is a persistent volume.
type volume struct {
	claim   ref    // that it is bound to; the zero ref if there is none
	secrets []ref  // that a node needs to mount it
	home    string // the node that it is confined to, "" if there is none
}

// ref is an object that a pod refers to.
type ref struct{ resource, namespace, name string }

// bound is a pod. A pod without a node has no references here, nor has a mirror pod,
// which the node itself writes: they give access to nothing.
type bound struct {
	node string
	refs []ref
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{pods: map[types.NamespacedName]*bound{}, needs: map[string]map[ref]int{}, volumes: map[string]volume{}, attached: map[string]string{}}
}

// volumeNeeded reports whether a pod of the node uses the claim of a persistent volume.
func (g *Graph) volumeNeeded(node, name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.needs[node][g.volumes[name].claim] > 0
}

// homeOf returns the node to which a persistent volume is confined, "" if there is none.
func (g *Graph) homeOf(volume string) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.volumes[volume].home
}

// needed reports whether a pod of the node, or a volume that it claims, refers to an
// object.
func (g *Graph) needed(node string, r ref) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.needs[node][r] > 0 || r.resource != "secrets" {
		return g.needs[node][r] > 0
	}
	for _, v := range g.volumes {
		if slices.Contains(v.secrets, r) && g.needs[node][v.claim] > 0 {
			return true
		}
	}
	return false
}

// attachedTo reports whether a VolumeAttachment is for the node.
func (g *Graph) attachedTo(node, attachment string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.attached[attachment] == node
}

// nodeOf returns the node of a pod, "" if it is unbound. known reports whether
// the pod exists.
func (g *Graph) nodeOf(namespace, name string) (node string, known bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p := g.pods[types.NamespacedName{Namespace: namespace, Name: name}]
	if p == nil {
		return "", false
	}
	return p.node, true
}

// Replace replaces all pods.
func (g *Graph) Replace(all []scheme.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pods)
	clear(g.needs)
	for _, obj := range all {
		g.putLocked(obj.(*corev1.Pod))
	}
}

// Put adds or updates a pod.
func (g *Graph) Put(obj scheme.Object) {
	p := obj.(*corev1.Pod)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeLocked(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	g.putLocked(p)
}

// Remove removes a pod, if it is present.
func (g *Graph) Remove(namespace, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeLocked(types.NamespacedName{Namespace: namespace, Name: name})
}

// putLocked adds a pod that is not in the graph. The caller holds g.mu.
func (g *Graph) putLocked(p *corev1.Pod) {
	b := &bound{node: p.Spec.NodeName}
	g.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = b
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror || b.node == "" {
		return
	}
	b.refs = refs(p)
	if len(b.refs) == 0 {
		return
	}
	needs := g.needs[b.node]
	if needs == nil {
		needs = map[ref]int{}
		g.needs[b.node] = needs
	}
	for _, r := range b.refs {
		needs[r]++
	}
}

// removeLocked removes a pod and its references, if it is present. The caller
// holds g.mu.
func (g *Graph) removeLocked(k types.NamespacedName) {
	b := g.pods[k]
	if b == nil {
		return
	}
	delete(g.pods, k)
	needs := g.needs[b.node]
	for _, r := range b.refs {
		if needs[r]--; needs[r] == 0 {
			delete(needs, r)
		}
	}
	if len(needs) == 0 {
		delete(g.needs, b.node)
	}
}

// refs returns the objects that the kubelet needs for a pod.
func refs(p *corev1.Pod) []ref {
	c := collector{namespace: p.Namespace}
	if p.Spec.ServiceAccountName != "" {
		c.add("serviceaccounts", p.Spec.ServiceAccountName)
	}
	for _, s := range p.Spec.ImagePullSecrets {
		c.add("secrets", s.Name)
	}
	for i := range p.Spec.InitContainers {
		c.environment(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom)
	}
	for i := range p.Spec.Containers {
		c.environment(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom)
	}
	for i := range p.Spec.EphemeralContainers {
		c.environment(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range p.Spec.Volumes {
		c.volume(p, &p.Spec.Volumes[i])
	}
	c.claims(p)
	return c.refs
}

// collector collects the references of one pod.
type collector struct {
	namespace string
	refs      []ref
}

func (c *collector) add(resource, name string) {
	if name != "" {
		c.refs = append(c.refs, ref{resource, c.namespace, name})
	}
}

func (c *collector) environment(vars []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, v := range vars {
		if v.ValueFrom == nil {
			continue
		}
		if r := v.ValueFrom.SecretKeyRef; r != nil {
			c.add("secrets", r.Name)
		}
		if r := v.ValueFrom.ConfigMapKeyRef; r != nil {
			c.add("configmaps", r.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			c.add("secrets", f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			c.add("configmaps", f.ConfigMapRef.Name)
		}
	}
}

// claims adds the pod's ResourceClaims: a template's are known by the pod's status.
func (c *collector) claims(p *corev1.Pod) {
	for i := range p.Spec.ResourceClaims {
		if name := p.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			c.add("resourceclaims", *name)
		}
	}
	for i := range p.Status.ResourceClaimStatuses {
		if name := p.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			c.add("resourceclaims", *name)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		c.add("resourceclaims", s.ResourceClaimName)
	}
}

func (c *collector) volume(p *corev1.Pod, v *corev1.Volume) {
	switch {
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		c.add("persistentvolumeclaims", volumebinding.ClaimName(p, v))
	case v.Secret != nil:
		c.add("secrets", v.Secret.SecretName)
	case v.ConfigMap != nil:
		c.add("configmaps", v.ConfigMap.Name)
	case v.CSI != nil:
		if r := v.CSI.NodePublishSecretRef; r != nil {
			c.add("secrets", r.Name)
		}
	case v.ISCSI != nil:
		if r := v.ISCSI.SecretRef; r != nil {
			c.add("secrets", r.Name)
		}
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				c.add("secrets", s.Secret.Name)
			}
			if s.ConfigMap != nil {
				c.add("configmaps", s.ConfigMap.Name)
			}
		}
	}
}
