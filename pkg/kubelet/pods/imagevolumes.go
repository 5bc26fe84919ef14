package pods

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
)

// imageIDs are the ids of the images that one container needs.
type imageIDs struct {
	container string
	volumes   map[string]string // by image volume
}

// ensureImages returns the ids of the container's image and of the image volumes that it
// mounts, or a *images.Waiting as the error. It does not wait for pulls, which run beside
// each other. key identifies the start of the container.
func (cs *containers) ensureImages(ctx context.Context, c *corev1.Container, key string) (imageIDs, error) {
	id, err := cs.m.puller.Ensure(ctx, cs.pod, c, key)
	list := podspec.ImageVolumes(cs.pod, c)
	out := imageIDs{id, make(map[string]string, len(list))}
	for _, v := range list {
		id, failed := cs.m.puller.Ensure(ctx, cs.pod, asContainer(v), key)
		if err == nil || isPulling(err) && failed != nil {
			err = failed
		}
		out.volumes[v.Name] = id
	}
	return out, err
}

// usedImages reports to the puller that the images were used for one start. err is that of
// the container's creation.
func (cs *containers) usedImages(c *corev1.Container, key string, err error) {
	cs.m.puller.Used(cs.uid, c, key)
	volumes := podspec.ImageVolumes(cs.pod, c)
	for _, v := range volumes {
		cs.m.puller.Used(cs.uid, asContainer(v), key)
	}
	cs.m.cfg.Metrics.imageVolumes(len(volumes), err)
}

// asContainer returns a nameless container with the image and the pull policy of an image
// volume, for the puller.
func asContainer(v *corev1.Volume) *corev1.Container {
	return &corev1.Container{Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
}

// isPulling reports whether err says that a pull is under way.
func isPulling(err error) bool {
	var w *images.Waiting
	return errors.As(err, &w) && w.Reason == ""
}
