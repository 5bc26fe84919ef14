package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Load imports images into all running nodes of a cluster. An image is an
// archive in the format of `docker save` (its name ends in .tar), or the name
// of an image in the engine.
func (e *Engine) Load(ctx context.Context, cluster string, images []string) error {
	nodes, err := e.existing(ctx, cluster)
	if err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		if n.State == "running" {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no node of cluster %s runs", cluster)
	}
	var saved []string
	for _, image := range images {
		if !strings.HasSuffix(image, ".tar") {
			saved = append(saved, image)
			continue
		}
		if err := e.loadArchive(ctx, names, image); err != nil {
			return err
		}
	}
	if len(saved) == 0 {
		return nil
	}
	return e.fanOut(ctx, names, func(ctx context.Context, w io.Writer) error {
		if err := e.run(ctx, nil, w, append([]string{"save"}, saved...)...); err != nil {
			return fmt.Errorf("take images from the engine: %w", err)
		}
		return nil
	})
}

func (e *Engine) loadArchive(ctx context.Context, nodes []string, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return e.fanOut(ctx, nodes, func(_ context.Context, w io.Writer) error {
		if _, err := io.Copy(w, f); err != nil {
			return fmt.Errorf("send %s: %w", file, err)
		}
		return nil
	})
}

// fanOut streams what source writes to containerd on all nodes concurrently.
// source is called once, and nothing is buffered.
func (e *Engine) fanOut(ctx context.Context, nodes []string, source func(context.Context, io.Writer) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var pipes []*io.PipeWriter
	var writers []io.Writer
	for _, name := range nodes {
		r, w := io.Pipe()
		pipes, writers = append(pipes, w), append(writers, w)
		g.Go(func() error {
			err := e.run(ctx, r, io.Discard, "exec", "--interactive", name, "ctr", "--namespace", "k8s.io", "images", "import", "-")
			if err != nil {
				err = fmt.Errorf("import on %s: %w", name, err)
			}
			r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // unblock source
			return err
		})
	}
	g.Go(func() error {
		err := source(ctx, io.MultiWriter(writers...))
		for _, w := range pipes {
			w.CloseWithError(err)
		}
		if errors.Is(err, io.ErrClosedPipe) {
			return nil // a node's import failed and returns the reason
		}
		return err
	})
	return g.Wait()
}
