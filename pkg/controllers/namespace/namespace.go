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
	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/metadata"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// again is the delay of the next check of a namespace that still has content. A deletion of
// its last pod enqueues it sooner.
const again = 2 * time.Second

// Spec describes the namespace controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{Name: "namespace-controller", Workers: workers, New: build}
}

type reconciler struct {
	*loop.Loop
	client     *client.Client
	discovery  *discovery.Client
	namespaces *informer.Informer[*corev1.Namespace]
	pods       *informer.Informer[*corev1.Pod]
	writer     controller.Writer[*corev1.Namespace]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		client: c.Client, discovery: discovery.New(c.Client),
		namespaces: informers.For[*corev1.Namespace](c.Informers), pods: informers.For[*corev1.Pod](c.Informers),
	}
	r.Loop = c.NewLoop("namespace", 20*time.Millisecond, r.reconcile, r.namespaces, r.pods)
	r.writer = controller.NewWriter(c, r.Loop, r.namespaces)
	loop.WakeOn(r.Loop, r.namespaces, loop.Self)
	r.pods.OnChange(r.podDeleted)
	return r, nil
}

// podDeleted enqueues a namespace when its last pod is gone.
func (r *reconciler) podDeleted(old, new *corev1.Pod) {
	if new != nil {
		return
	}
	if ns, ok := r.namespaces.Get("", old.Namespace); ok && ns.DeletionTimestamp != nil && r.pods.Count(ns.Name) == 0 {
		r.Wake(loop.KeyOf(ns))
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := r.namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return loop.Done, nil
	}
	left := r.empty(ctx, ns.Name)
	if ctx.Err() != nil {
		return loop.Done, ctx.Err()
	}
	ns, err := r.updateStatus(ctx, key, ns, left)
	switch {
	case err != nil || ns == nil:
		return loop.Done, err
	case left.none():
		return loop.Done, r.finalize(ctx, ns)
	case left.Discovery != nil:
		// An aggregated API is down, perhaps for a moment. The condition says which one; the
		// next attempt comes soon instead of after a back-off that grows while it is down.
		return loop.After(again), nil
	case len(left.Errors) > 0:
		return loop.Done, fmt.Errorf("delete content: %s", texts(left.Errors))
	}
	return loop.After(again), nil
}

// empty deletes the objects of every served kind in the namespace. Pods go first, so that the
// objects they use exist until they end.
func (r *reconciler) empty(ctx context.Context, namespace string) remains {
	left := remains{Objects: map[schema.GroupVersionResource]int{}, Finalizers: map[string]int{}}
	catalog, err := r.discovery.Catalog(ctx)
	if left.Discovery = err; err == nil {
		left.Discovery = catalog.Err()
	}
	var mu sync.Mutex
	sweep := func(pods bool) {
		var wg sync.WaitGroup
		for _, k := range catalog.Resources {
			isPods := k.Group == "" && k.Resource == "pods"
			if k.Namespaced && isPods == pods && k.Supports("list", "deletecollection") {
				wg.Go(func() { r.sweep(ctx, metadata.Of(r.client, k.Kind), namespace, &left, &mu) })
			}
		}
		wg.Wait()
	}
	if sweep(true); len(left.Objects) == 0 && len(left.Errors) == 0 {
		sweep(false)
	}
	return left
}

// sweep deletes all objects of one kind and adds the remaining ones to left.
func (r *reconciler) sweep(ctx context.Context, k metadata.Kind, namespace string, left *remains, mu *sync.Mutex) {
	objects, err := r.clear(ctx, k, namespace)
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

// clear deletes all objects of one kind, unless all are being deleted already, and returns the
// remaining ones.
func (r *reconciler) clear(ctx context.Context, k metadata.Kind, namespace string) ([]*metadata.Object, error) {
	objects, err := k.In(ctx, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil // no longer served
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

// updateStatus writes the conditions for what is left. It returns the updated namespace, nil
// if it no longer exists.
func (r *reconciler) updateStatus(ctx context.Context, key loop.Key, ns *corev1.Namespace, left remains) (*corev1.Namespace, error) {
	next := ns.DeepCopy()
	next.Status.Phase = corev1.NamespaceTerminating
	if !left.none() || len(ns.Status.Conditions) > 0 { // a namespace that is empty from the start needs no conditions
		next.Status.Conditions = withRemains(next.Status.Conditions, left, time.Now())
	}
	if equality.Semantic.DeepEqual(next.Status, ns.Status) {
		return ns, nil
	}
	return r.writer.UpdateStatus(ctx, key, next)
}

// finalize removes this controller's finalizer. The API server deletes a namespace without
// finalizers.
func (r *reconciler) finalize(ctx context.Context, ns *corev1.Namespace) error {
	next := ns.DeepCopy()
	next.Spec.Finalizers = slices.DeleteFunc(next.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	kind := r.client.Scheme().ByKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	_, _, err = r.client.Do(ctx, client.Request{
		Method: http.MethodPut, Path: client.CollectionPath(kind, "") + "/" + ns.Name + "/finalize", Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize: %w", err)
	}
	return nil
}
