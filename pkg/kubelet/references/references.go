package references

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// Strategy is how changes of objects are noticed.
type Strategy string

// The strategies, with upstream's names.
const (
	Watch Strategy = "Watch" // of each object, once a node: changes are seen at once
	Cache Strategy = "Cache" // an object is read at most once per Config.Lifetime
	Get   Strategy = "Get"   // an object is read each time
)

// ParseStrategy returns the strategy with the name; Watch if the name is empty.
func ParseStrategy(name string) (Strategy, error) {
	switch s := Strategy(name); s {
	case "":
		return Watch, nil
	case Watch, Cache, Get:
		return s, nil
	}
	return "", fmt.Errorf("%q: want %s, %s or %s", name, Watch, Cache, Get)
}

// Config holds the settings and dependencies of References.
type Config struct {
	Client   *client.Client
	Strategy Strategy      // "": Watch
	Lifetime time.Duration // with Cache: of an object that has been read
	// Changed takes the pods whose volumes may show the former state of an object. It
	// must not call References.
	Changed func(pods []types.UID)
	Log     *slog.Logger
}

// References reads objects. Its methods are safe for concurrent use.
type References struct {
	configMaps *objects[*corev1.ConfigMap]
	secrets    *objects[*corev1.Secret]
}

// New returns References that refer to nothing yet.
func New(cfg Config) *References {
	return &References{
		configMaps: newObjects[*corev1.ConfigMap](&cfg, corev1.Resource("configmaps")),
		secrets:    newObjects[*corev1.Secret](&cfg, corev1.Resource("secrets")),
	}
}

// Follow notes the objects to which the pod's volumes refer. With Watch, it watches
// them until Forget, or until ctx ends.
func (r *References) Follow(ctx context.Context, pod *corev1.Pod) {
	configMaps, secrets := shown(pod)
	r.configMaps.follow(ctx, pod, configMaps)
	r.secrets.follow(ctx, pod, secrets)
}

// Forget ends Follow of a pod.
func (r *References) Forget(uid types.UID) {
	r.configMaps.forget(uid)
	r.secrets.forget(uid)
}

// Wait blocks until no object is watched any more: those that are followed end with the
// context of Follow.
func (r *References) Wait() {
	r.configMaps.running.Wait()
	r.secrets.running.Wait()
}

// ConfigMap returns a ConfigMap, which must not be modified. Errors are those of a read
// by the client.
func (r *References) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return r.configMaps.get(ctx, namespace, name)
}

// Secret returns a Secret, which must not be modified. Errors are those of a read by the
// client.
func (r *References) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return r.secrets.get(ctx, namespace, name)
}

// shown returns the names of the objects that the pod's volumes show.
func shown(pod *corev1.Pod) (configMaps, secrets []string) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.ConfigMap != nil:
			configMaps = append(configMaps, v.ConfigMap.Name)
		case v.Secret != nil:
			secrets = append(secrets, v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					configMaps = append(configMaps, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					secrets = append(secrets, s.Secret.Name)
				}
			}
		}
	}
	return configMaps, secrets
}
