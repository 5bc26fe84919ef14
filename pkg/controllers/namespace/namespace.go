package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/metadata"
)

// again is how soon a namespace that still has content is looked at once more.
// A change of its pods wakes it sooner.
const again = 2 * time.Second

// Controller is the namespace controller.
type Controller struct {
	cfg        kit.Kit
	namespaces client.Resource[*corev1.Namespace]
	pods       metadata.Kind
	others     []metadata.Kind
	loop       *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, namespaces: client.For[*corev1.Namespace](cfg.Client)}
	for _, k := range cfg.Client.Scheme().Kinds() {
		switch {
		case !k.Stored():
		case k.Resource == "pods" && k.Group == "":
			c.pods = metadata.Of(cfg.Client, k)
		case k.Namespaced:
			c.others = append(c.others, metadata.Of(cfg.Client, k))
		}
	}
	c.loop = cfg.Loop("namespace", 20*time.Millisecond, c.reconcile, cfg.Views.Namespaces, cfg.Views.Pods)
	loop.WakeOn(c.loop, cfg.Views.Namespaces, loop.Self)
	cfg.Views.Pods.OnChange(c.podGone)
	return c
}

// Run empties namespaces until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// podGone wakes a namespace when its last pod goes.
func (c *Controller) podGone(old, new *corev1.Pod) {
	if new != nil {
		return
	}
	if ns, ok := c.cfg.Views.Namespaces.Get("", old.Namespace); ok && ns.DeletionTimestamp != nil && c.cfg.Views.Pods.Count(ns.Name) == 0 {
		c.loop.Wake(loop.KeyOf(ns))
	}
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := c.cfg.Views.Namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return loop.Done, nil
	}
	left := c.empty(ctx, ns.Name)
	if ctx.Err() != nil {
		return loop.Done, ctx.Err()
	}
	ns, err := c.writeStatus(ctx, ns, left)
	if err != nil || ns == nil {
		return loop.Done, err
	}
	if left.none() {
		return loop.Done, c.finalize(ctx, ns)
	}
	if len(left.Errors) > 0 {
		return loop.Done, fmt.Errorf("delete content: %s", texts(left.Errors))
	}
	return loop.After(again), nil
}

// empty deletes what the namespace holds. Pods go first, so that nothing they
// use is taken from them while they end.
func (c *Controller) empty(ctx context.Context, namespace string) remains {
	left := remains{Objects: map[schema.GroupVersionResource]int{}, Finalizers: map[string]int{}}
	var mu sync.Mutex
	c.sweep(ctx, c.pods, namespace, &left, &mu)
	if !left.none() {
		return left
	}
	var wg sync.WaitGroup
	for _, k := range c.others {
		wg.Go(func() { c.sweep(ctx, k, namespace, &left, &mu) })
	}
	wg.Wait()
	return left
}

// sweep deletes all objects of one kind and notes those that stay.
func (c *Controller) sweep(ctx context.Context, k metadata.Kind, namespace string, left *remains, mu *sync.Mutex) {
	objects, err := c.clear(ctx, k, namespace)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		left.Errors = append(left.Errors, fmt.Errorf("%s: %w", k.Resource, err))
	}
	if len(objects) > 0 {
		left.Objects[k.GVR()] = len(objects)
	}
	for _, o := range objects {
		for _, f := range o.Finalizers {
			left.Finalizers[f]++
		}
	}
}

// clear asks for the end of all objects of one kind, those apart that are
// ending already, and returns what is left.
func (c *Controller) clear(ctx context.Context, k metadata.Kind, namespace string) ([]*metadata.Object, error) {
	objects, err := k.In(ctx, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil // the server does not serve the kind
	}
	staying := func(o *metadata.Object) bool { return o.DeletionTimestamp == nil }
	if err != nil || !slices.ContainsFunc(objects, staying) {
		return objects, err
	}
	if err := k.DeleteAll(ctx, namespace, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return objects, err
	}
	return k.In(ctx, namespace)
}

// writeStatus notes what is left. It returns the namespace as it is now, nil if it is gone.
func (c *Controller) writeStatus(ctx context.Context, ns *corev1.Namespace, left remains) (*corev1.Namespace, error) {
	next := ns.DeepCopy()
	next.Status.Phase = corev1.NamespaceTerminating
	if !left.none() || len(ns.Status.Conditions) > 0 { // one that empties at once needs no conditions
		next.Status.Conditions = conditions(ns.Status.Conditions, left, time.Now())
	}
	if equality.Semantic.DeepEqual(next.Status, ns.Status) {
		return ns, nil
	}
	got, err := c.namespaces.UpdateStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write status: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(ns), c.cfg.Views.Namespaces, got.ResourceVersion)
	return got, nil
}

// finalize takes our finalizer away; without any, the namespace is gone.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	next := ns.DeepCopy()
	next.Spec.Finalizers = slices.DeleteFunc(next.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	kind := c.cfg.Client.Scheme().ByKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	_, _, err = c.cfg.Client.Do(ctx, client.Request{
		Method: http.MethodPut, Path: client.CollectionPath(kind, "") + "/" + ns.Name + "/finalize", Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize: %w", err)
	}
	return nil
}
