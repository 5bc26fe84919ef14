package images

import (
	"context"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
)

// CollectorConfig configures a Collector.
type CollectorConfig struct {
	Images  cri.Images
	Runtime cri.Runtime
	Pods    func() []*corev1.Pod                      // the images that they name are in use
	Usage   func() (used, capacity uint64, err error) // of the images' file system
	High    int                                       // percentage of use at which the collection begins
	Low     int                                       // percentage of use at which the collection ends
	MinAge  time.Duration                             // younger images are not removed
	Keep    string                                    // the name of an image that is never removed
	Records *Records                                  // Collect also removes the records of images that do not exist
	Log     *slog.Logger
}

// Collector removes unused images, the longest unused first. An image's age
// counts from when the Collector first saw it. It is safe for concurrent use.
type Collector struct {
	cfg  CollectorConfig
	mu   sync.Mutex           // held during a collection
	seen map[string]time.Time // first seen, by id
	used map[string]time.Time // last seen in use, by id
}

// NewCollector returns a Collector.
func NewCollector(cfg CollectorConfig) *Collector {
	return &Collector{cfg: cfg, seen: map[string]time.Time{}, used: map[string]time.Time{}}
}

// Collect runs one collection. It logs errors.
func (c *Collector) Collect(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	candidates, ids, err := c.candidates(ctx, began)
	if err != nil {
		c.cfg.Log.Warn("list images failed", "error", err)
		return
	}
	removed := c.remove(ctx, candidates)
	c.cfg.Records.Prune(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(removed, id) }), began)
}

// Free removes all images that may be removed. It logs errors.
func (c *Collector) Free(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	candidates, _, err := c.candidates(ctx, time.Now())
	if err != nil {
		c.cfg.Log.Warn("list images failed", "error", err)
		return
	}
	c.removeUntil(ctx, candidates, func(uint64) bool { return false })
}

// remove removes images until the use of the file system is down to Low, and
// returns the ids of the removed images. Below High it does nothing.
func (c *Collector) remove(ctx context.Context, candidates []*runtimeapi.Image) (removed []string) {
	used, capacity, err := c.cfg.Usage()
	if err != nil || capacity == 0 {
		c.cfg.Log.Warn("get image file system usage failed", "error", err)
		return nil
	}
	if used*100 < capacity*uint64(c.cfg.High) {
		return nil
	}
	target := capacity * uint64(c.cfg.Low) / 100
	return c.removeUntil(ctx, candidates, func(freed uint64) bool { return used-min(used, freed) <= target })
}

// removeUntil removes images until enough says that the bytes freed suffice. It returns
// the ids of the removed images.
func (c *Collector) removeUntil(ctx context.Context, candidates []*runtimeapi.Image, enough func(freed uint64) bool) (removed []string) {
	freed := uint64(0)
	for _, image := range candidates {
		if enough(freed) {
			break
		}
		if _, err := c.cfg.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image.Id}}); err != nil {
			c.cfg.Log.Warn("remove image failed", "image", image.Id, "error", err)
			continue
		}
		c.cfg.Log.Info("image removed: the disk is filling up", "image", image.Id, "bytes", image.Size)
		freed += image.Size
		delete(c.seen, image.Id)
		delete(c.used, image.Id)
		removed = append(removed, image.Id)
	}
	return removed
}

// candidates returns the images that may be removed, the longest unused first,
// and the ids of all images.
func (c *Collector) candidates(ctx context.Context, now time.Time) (out []*runtimeapi.Image, ids []string, err error) {
	list, err := c.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, nil, err
	}
	inUse, err := c.inUse(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, image := range list.Images {
		ids = append(ids, image.Id)
		if _, known := c.seen[image.Id]; !known {
			c.seen[image.Id] = now
		}
		names := append(append([]string{image.Id}, image.RepoTags...), image.RepoDigests...)
		busy := image.Pinned
		for _, n := range names {
			busy = busy || inUse[n] || n == c.cfg.Keep
		}
		if busy {
			c.used[image.Id] = now
		} else if now.Sub(c.seen[image.Id]) >= c.cfg.MinAge {
			out = append(out, image)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return c.last(out[i]).Before(c.last(out[j])) })
	return out, ids, nil
}

func (c *Collector) last(i *runtimeapi.Image) time.Time {
	if t, ok := c.used[i.Id]; ok {
		return t
	}
	return c.seen[i.Id]
}

// inUse returns the names and ids of the images of all containers, running or
// not, and the names of the images of all pods.
func (c *Collector) inUse(ctx context.Context) (map[string]bool, error) {
	list, err := c.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, ct := range list.Containers {
		out[ct.GetImage().GetImage()] = true
		out[ct.ImageRef] = true
	}
	for _, pod := range c.cfg.Pods() {
		for c := range podspec.Containers(pod) {
			out[withTag(c.Image)] = true
			out[canonical(c.Image)] = true
		}
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				out[withTag(v.Image.Reference)] = true
				out[canonical(v.Image.Reference)] = true
			}
		}
	}
	return out, nil
}
