package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/images"
)

// imageGCPeriod is the interval between checks of the image file system.
const imageGCPeriod = 5 * time.Minute

// collectImages runs the image garbage collector until ctx ends. It returns nil
// at once if image garbage collection is disabled.
func collectImages(ctx context.Context, cfg *Config, pods func() []*corev1.Pod, records *images.Records) error {
	if cfg.ImageGC.Usage == nil || cfg.ImageGC.High <= 0 {
		return nil
	}
	c := images.NewCollector(images.CollectorConfig{
		Images: cfg.Images, Runtime: cfg.Runtime, Pods: pods, Usage: cfg.ImageGC.Usage,
		High: cfg.ImageGC.High, Low: cfg.ImageGC.Low, MinAge: cfg.ImageGC.MinAge, Keep: cfg.ImageGC.Keep, Records: records, Log: cfg.Log,
	})
	t := time.NewTicker(imageGCPeriod)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.Collect(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
