package csi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/attachment"
	"podium/pkg/intree"
	"podium/pkg/kubelet/volumes"
)

// volume is a volume of a pod that is being set up, and what its driver is told.
type volume struct {
	record
	pod      *volumes.Volume
	dir      string // the pod's directory for it: its record and, for a file system, its target
	readOnly bool
	fsType   string
	options  []string                          // of the mount
	inline   bool                              // a volume of the pod itself, not of a claim
	mode     corev1.PersistentVolumeAccessMode // the first one of the persistent volume
	context  map[string]string
	secrets  struct{ stage, publish, expand *corev1.SecretReference }

	object   *storagev1.CSIDriver // nil: the driver has none
	metadata map[string]string    // of the attachment
}

// persistent returns the volume of a claim. Only its object and metadata are missing.
func (d *Driver) persistent(c *volumes.Claimed) *volume {
	v := d.ofSource(intree.Source(c.PV), c.Volume, c.PV.Name)
	v.dir, v.readOnly, v.options = c.Dir(name), v.readOnly || c.ReadOnly(), c.PV.Spec.MountOptions
	if c.Device {
		v.Mode = corev1.PersistentVolumeBlock
	}
	if len(c.PV.Spec.AccessModes) > 0 {
		v.mode = c.PV.Spec.AccessModes[0]
	}
	return v
}

// ofSource returns a volume of a pod, which has the driver's volume of that name. The
// field readOnly of other drivers' sources is for attachers.
func (d *Driver) ofSource(source *corev1.CSIPersistentVolumeSource, p *volumes.Volume, volumeName string) *volume {
	v := &volume{
		record: record{Volume: volumeName, Handle: source.VolumeHandle, Driver: source.Driver, Node: d.NodeName, Lifecycle: storagev1.VolumeLifecyclePersistent},
		pod:    p, dir: p.Dir, readOnly: source.ReadOnly && intree.Driver(source.Driver) != nil, fsType: source.FSType,
		mode: corev1.ReadWriteOnce, context: source.VolumeAttributes,
	}
	v.secrets.stage, v.secrets.publish, v.secrets.expand = source.NodeStageSecretRef, source.NodePublishSecretRef, source.NodeExpandSecretRef
	return v
}

// ofPod returns an inline volume of a pod. Its handle is the same whenever it is set up.
func (d *Driver) ofPod(p *volumes.Volume) *volume {
	if source := intree.Inline(p.Pod, p.Spec); source != nil {
		v := d.ofSource(source, p, p.Spec.Name)
		v.inline = true
		return v
	}
	source := p.Spec.CSI
	handle := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(p.Pod.UID)+p.Spec.Name)))
	v := &volume{
		record: record{Volume: p.Spec.Name, Handle: handle, Driver: source.Driver, Node: d.NodeName, Lifecycle: storagev1.VolumeLifecycleEphemeral},
		pod:    p, dir: p.Dir, mode: corev1.ReadWriteOnce, context: source.VolumeAttributes, inline: true,
		readOnly: source.ReadOnly != nil && *source.ReadOnly,
	}
	if source.FSType != nil {
		v.fsType = *source.FSType
	}
	if ref := source.NodePublishSecretRef; ref != nil {
		v.secrets.publish = &corev1.SecretReference{Namespace: p.Pod.Namespace, Name: ref.Name}
	}
	return v
}

// checkMode returns an error if the driver does not mount volumes of this lifecycle. A
// driver without a CSIDriver object has persistent volumes only.
func (v *volume) checkMode() error {
	if v.object == nil {
		if v.persistent() {
			return nil
		}
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", v.Lifecycle, v.Driver)
	}
	modes := v.object.Spec.VolumeLifecycleModes
	if len(modes) == 0 && v.persistent() || slices.Contains(modes, v.Lifecycle) {
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", v.Lifecycle, v.Driver, modes)
}

func (v *volume) attaches() bool { return !v.inline && attachment.Required(v.object) }

// republishes reports whether the driver wants to be called periodically.
func (v *volume) republishes() bool {
	return v.object != nil && v.object.Spec.RequiresRepublish != nil && *v.object.Spec.RequiresRepublish
}

func (v *volume) group() *int64 {
	if sc := v.pod.Pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// ownsGroup reports whether the kubelet gives the files to the pod's fsGroup.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#csi fsGroupPolicy
func (v *volume) ownsGroup(s *service) bool {
	if v.group() == nil || v.device() || s.calls[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if v.object != nil && v.object.Spec.FSGroupPolicy != nil {
		policy = *v.object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.NoneFSGroupPolicy:
		return false
	}
	return v.fsType != "" && !v.readOnly && (v.mode == corev1.ReadWriteOnce || v.mode == corev1.ReadWriteOncePod)
}

// capability returns how the volume is to be mounted.
func (v *volume) capability(s *service) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: accessMode(v.mode, s)}}
	if v.device() {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return c
	}
	mount := &spec.VolumeCapability_MountVolume{FsType: v.fsType, MountFlags: v.options}
	if g := v.group(); g != nil && s.calls[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		mount.VolumeMountGroup = strconv.FormatInt(*g, 10)
	}
	c.AccessType = &spec.VolumeCapability_Mount{Mount: mount}
	return c
}

// accessMode translates an access mode. Drivers that tell one writer from several on a node
// get the newer modes.
func accessMode(m corev1.PersistentVolumeAccessMode, s *service) spec.VolumeCapability_AccessMode_Mode {
	newer := s.calls[spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	switch m {
	case corev1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case corev1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case corev1.ReadWriteOncePod:
		if newer {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
	case corev1.ReadWriteOnce:
		if newer {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	}
	return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// publishContext returns the volume's context with what the CSIDriver asks for about the
// pod, and the secrets, to which the tokens are added if it wants them there.
func (d *Driver) publishContext(ctx context.Context, v *volume) (about, secrets map[string]string, err error) {
	if secrets, err = d.secret(ctx, v.secrets.publish, "NodePublishSecretRef"); err != nil {
		return nil, nil, err
	}
	about = maps.Clone(v.context)
	if about == nil {
		about = map[string]string{}
	}
	if v.object == nil {
		return about, secrets, nil
	}
	pod := v.pod.Pod
	if p := v.object.Spec.PodInfoOnMount; p != nil && *p {
		maps.Copy(about, map[string]string{
			"csi.storage.k8s.io/pod.name": pod.Name, "csi.storage.k8s.io/pod.namespace": pod.Namespace, "csi.storage.k8s.io/pod.uid": string(pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName, "csi.storage.k8s.io/ephemeral": strconv.FormatBool(!v.persistent()),
		})
	}
	tokens, err := v.tokens(ctx)
	if err != nil || tokens == "" {
		return about, secrets, err
	}
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	if in := v.object.Spec.ServiceAccountTokenInSecrets; in == nil || !*in {
		about[key] = tokens
		return about, secrets, nil
	}
	if secrets == nil {
		secrets = map[string]string{}
	}
	secrets[key] = tokens
	return about, secrets, nil
}

// tokens returns the tokens that the CSIDriver requests, by audience; "" if it requests
// none.
func (v *volume) tokens(ctx context.Context) (string, error) {
	if len(v.object.Spec.TokenRequests) == 0 {
		return "", nil
	}
	type token struct {
		Token   string      `json:"token"`
		Expires metav1.Time `json:"expirationTimestamp"`
	}
	all := map[string]token{}
	for _, r := range v.object.Spec.TokenRequests {
		t, err := v.pod.Token(ctx, r.Audience, r.ExpirationSeconds)
		if err != nil {
			return "", fmt.Errorf("fetch a token for audience %q: %w", r.Audience, err)
		}
		all[r.Audience] = token{t.Status.Token, t.Status.ExpirationTimestamp}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// secret reads the Secret of a reference; nil for none.
func (d *Driver) secret(ctx context.Context, ref *corev1.SecretReference, field string) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	s, err := d.API.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %w", field, ref.Namespace, ref.Name, err)
	}
	out := map[string]string{}
	for key, value := range s.Data {
		out[key] = string(value)
	}
	return out, nil
}

// attachTimeout is how long a set-up waits for an attachment before it fails and is
// retried.
const attachTimeout = 2 * time.Minute

// attached blocks until the volume is attached to the node, and remembers the metadata of
// the attachment. The node's status has to say first that the volume is in use: from then
// on the controller does not detach it.
func (d *Driver) attached(ctx context.Context, v *volume) error {
	wait, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	unique := attachment.Volume(v.Driver, v.Handle)
	err := d.Node.Await(wait, func(n *corev1.Node) bool { return attachment.InUse(n, unique) && attachment.Attached(n, unique) })
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("timed out waiting for the volume to be attached to the node")
	}
	if err != nil {
		return err
	}
	a, err := d.API.VolumeAttachment(ctx, v.Attachment)
	switch {
	case err != nil:
		return fmt.Errorf("read VolumeAttachment %s: %w", v.Attachment, err)
	case !a.Status.Attached || a.DeletionTimestamp != nil:
		return fmt.Errorf("VolumeAttachment %s is not attached", v.Attachment)
	}
	v.metadata = a.Status.AttachmentMetadata
	return nil
}
