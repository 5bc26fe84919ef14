package kubelet

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/kubelet/csi"
	"podium/pkg/kubelet/dra"
	"podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/references"
	"podium/pkg/kubelet/staticpods"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
)

var (
	errNotRegistered = errors.New("the node is not registered")
	errNotSynced     = errors.New("the node's pods have not been listed")
)

// The label and the namespace of the Leases of the kube-proxies.
const (
	proxyLabel     = "podium.dev/component=kube-proxy"
	proxyNamespace = metav1.NamespaceSystem
)

// api reads and writes the objects that the kubelet needs, directly in the API.
type api struct {
	pods       client.Resource[*corev1.Pod]
	configMaps client.Resource[*corev1.ConfigMap]
	secrets    client.Resource[*corev1.Secret]
	claims     client.Resource[*corev1.PersistentVolumeClaim]
	volumes    client.Resource[*corev1.PersistentVolume]
	accounts   client.Resource[*corev1.ServiceAccount]
	slices     client.Resource[*discoveryv1.EndpointSlice]
	leases     client.Resource[*coordinationv1.Lease]
	runtimes   client.Resource[*nodev1.RuntimeClass]

	nodes       client.Resource[*corev1.Node]
	drivers     client.Resource[*storagev1.CSIDriver]
	csiNodes    client.Resource[*storagev1.CSINode]
	attachments client.Resource[*storagev1.VolumeAttachment]

	resourceClaims client.Resource[*resourcev1.ResourceClaim]
	resourceSlices client.Resource[*resourcev1.ResourceSlice]
}

var (
	_ staticpods.API  = (*api)(nil)
	_ pods.Endpoints  = (*api)(nil)
	_ volumes.Sources = volumeSources{}
	_ csi.API         = (*api)(nil)
	_ dra.API         = (*api)(nil)
)

func newAPI(c *client.Client) *api {
	return &api{
		pods: client.For[*corev1.Pod](c), configMaps: client.For[*corev1.ConfigMap](c), secrets: client.For[*corev1.Secret](c),
		claims: client.For[*corev1.PersistentVolumeClaim](c), volumes: client.For[*corev1.PersistentVolume](c),
		accounts: client.For[*corev1.ServiceAccount](c), slices: client.For[*discoveryv1.EndpointSlice](c),
		leases: client.For[*coordinationv1.Lease](c).In(proxyNamespace), runtimes: client.For[*nodev1.RuntimeClass](c),
		nodes: client.For[*corev1.Node](c), drivers: client.For[*storagev1.CSIDriver](c),
		csiNodes: client.For[*storagev1.CSINode](c), attachments: client.For[*storagev1.VolumeAttachment](c),
		resourceClaims: client.For[*resourcev1.ResourceClaim](c), resourceSlices: client.For[*resourcev1.ResourceSlice](c),
	}
}

func (a *api) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return a.pods.In(namespace).Get(ctx, name)
}

func (a *api) PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	return a.pods.In(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, "status")
}

func (a *api) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return a.pods.In(pod.Namespace).Create(ctx, pod)
}

// DeletePod deletes the pod at once, without a grace period. It returns nil if
// the pod no longer exists or if another pod has its name.
func (a *api) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	now := int64(0)
	err := a.pods.In(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (a *api) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return a.configMaps.In(namespace).Get(ctx, name)
}

func (a *api) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return a.secrets.In(namespace).Get(ctx, name)
}

// volumeSources reads what volumes show.
type volumeSources struct {
	*api
	references *references.References
}

func (s volumeSources) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return s.references.ConfigMap(ctx, namespace, name)
}

func (s volumeSources) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return s.references.Secret(ctx, namespace, name)
}

func (a *api) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return a.claims.In(namespace).Get(ctx, name)
}

func (a *api) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return a.volumes.Get(ctx, name)
}

func (a *api) PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.PersistentVolumeClaim, error) {
	return a.claims.In(namespace).Patch(ctx, name, types.MergePatchType, patch, "status")
}

func (a *api) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return a.drivers.Get(ctx, name)
}

func (a *api) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return a.attachments.Get(ctx, name)
}

func (a *api) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return a.nodes.Get(ctx, name)
}

func (a *api) PatchNode(ctx context.Context, name string, patch []byte) error {
	_, err := a.nodes.Patch(ctx, name, types.MergePatchType, patch)
	return err
}

func (a *api) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	return a.csiNodes.Get(ctx, name)
}

func (a *api) CreateCSINode(ctx context.Context, n *storagev1.CSINode) error {
	_, err := a.csiNodes.Create(ctx, n)
	return err
}

func (a *api) UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error {
	_, err := a.csiNodes.Update(ctx, n)
	return err
}

func (a *api) ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	return a.resourceClaims.In(namespace).Get(ctx, name)
}

func (a *api) DeleteResourceSlices(ctx context.Context, selector fields.Selector) error {
	return a.resourceSlices.DeleteCollection(ctx, metav1.ListOptions{FieldSelector: selector.String()})
}

// RuntimeHandler returns the handler of a RuntimeClass, which is immutable.
func (a *api) RuntimeHandler(ctx context.Context, class string) (string, error) {
	c, err := a.runtimes.Get(ctx, class)
	if err != nil {
		return "", err
	}
	return c.Handler, nil
}

func (a *api) Token(ctx context.Context, namespace, account string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	out := &authenticationv1.TokenRequest{}
	return out, a.accounts.In(namespace).Post(ctx, account, "token", req, out)
}

func (a *api) Slices(ctx context.Context, namespace string) ([]*discoveryv1.EndpointSlice, error) {
	list, err := a.slices.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (a *api) Slice(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	return a.slices.In(namespace).Get(ctx, name)
}

func (a *api) Proxies(ctx context.Context) ([]*coordinationv1.Lease, error) {
	list, err := a.leases.List(ctx, metav1.ListOptions{LabelSelector: proxyLabel})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// strip removes the fields that the kubelet does not read, to save memory.
func strip(obj scheme.Object) { obj.SetManagedFields(nil) }

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
