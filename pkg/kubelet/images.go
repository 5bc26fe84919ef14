package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/credentialprovider"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/images"
)

// imageGCPeriod is the interval between checks of the image file system.
const imageGCPeriod = 5 * time.Minute

// newCollector returns the image garbage collector.
func newCollector(cfg *Config, pods func() []*corev1.Pod, records *images.Records) *images.Collector {
	return images.NewCollector(images.CollectorConfig{
		Images: cfg.Images, Runtime: cfg.Runtime, Pods: pods, Usage: cfg.ImageGC.Usage,
		High: cfg.ImageGC.High, Low: cfg.ImageGC.Low, MinAge: cfg.ImageGC.MinAge, Keep: cfg.ImageGC.Keep, Records: records, Log: cfg.Log,
	})
}

// collectImages runs the image garbage collector until ctx ends. It returns nil
// at once if image garbage collection is disabled.
func collectImages(ctx context.Context, cfg *Config, c *images.Collector) error {
	if cfg.ImageGC.Usage == nil || cfg.ImageGC.High <= 0 {
		return nil
	}
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

// imageDir returns the directory of the runtime's images; that of the kubelet's files if
// the runtime does not report it.
func imageDir(ctx context.Context, runtime cri.Images, rootDir string) string {
	res, err := runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err == nil {
		for _, fs := range res.ImageFilesystems {
			if dir := fs.GetFsId().GetMountpoint(); exists(dir) {
				return dir
			}
		}
	}
	return rootDir
}

// imageProviders sets up the programs that know credentials for registries.
func (o *options) imageProviders(cfg *Config) error {
	if o.providerFile == "" {
		return nil
	}
	p, err := credentialprovider.New(credentialprovider.Config{
		File: o.providerFile, Dir: o.providerDir, Run: credentialprovider.Exec, Now: time.Now, Registry: cfg.Registry, Log: cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	cfg.ImageProviders = p
	return nil
}
