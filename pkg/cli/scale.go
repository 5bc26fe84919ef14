package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/cli/rest"
)

// scaleOptions are the flags of scale.
type scaleOptions struct {
	change
	Replicas int32
	Current  int32
	Version  string        // --resource-version
	Timeout  time.Duration // how long to wait until there are as many replicas; 0: do not wait
}

func newScale(f *Factory, run func(context.Context, *scaleOptions) error) *cobra.Command {
	o := &scaleOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:               "scale TYPE/NAME --replicas=N",
		Short:             "Set a new size for a deployment, replica set, or replication controller",
		Example:           "  podium scale deployment/web --replicas=5",
		ValidArgsFunction: f.completeNames("deployments", "deployment", "replicaset", "replicationcontroller", "statefulset"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Args = args
			if !cmd.Flags().Changed("replicas") || o.Replicas < 0 {
				return errors.New("the --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0")
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().Int32Var(&o.Replicas, "replicas", -1, "new desired number of replicas")
	cmd.Flags().Int32Var(&o.Current, "current-replicas", -1, "precondition for the current number of replicas")
	cmd.Flags().StringVar(&o.Version, "resource-version", "", "precondition for the resource version")
	cmd.Flags().BoolVar(&o.All, "all", false, "select all resources in the namespace of the specified resource types")
	o.labelFlag(cmd)
	o.fileFlags(cmd, "what to scale")
	dryRunFlag(cmd, &o.DryRun)
	o.formatFlag(cmd)
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "length of time to wait until the object has its replicas, before giving up; 0: do not wait")
	return cmd
}

func runScale(ctx context.Context, o *scaleOptions) error {
	return o.each(ctx, false, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if err := o.scale(ctx, c, t); err != nil {
			return nil, "", err
		}
		if o.Timeout > 0 && o.DryRun == "none" {
			if err := o.await(ctx, c, t); err != nil {
				return nil, "", err
			}
		}
		if o.options().Format == "" {
			return nil, "scaled", nil
		}
		now, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
		return now, "scaled", err
	})
}

// await waits until the object has as many replicas as it was scaled to.
func (o *scaleOptions) await(ctx context.Context, c *rest.Cluster, t target) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for {
		now, err := c.Get(ctx, t.Kind, t.Namespace, t.Name, "scale")
		if err == nil {
			if have, _, _ := unstructured.NestedInt64(now.Object, "status", "replicas"); have == int64(o.Replicas) {
				return nil
			}
			err = backoff.Sleep(ctx, lookPeriod)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s was scaled, and timed out waiting for %d replicas", t, o.Replicas)
		}
		if err != nil {
			return err
		}
	}
}

// scale sets the replicas through the scale subresource. With
// --current-replicas it fails if the object has another number.
func (o *scaleOptions) scale(ctx context.Context, c *rest.Cluster, t target) error {
	if o.DryRun == "client" {
		return nil
	}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, o.Replicas)
	if o.Current >= 0 || o.Version != "" {
		now, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
		if err != nil {
			return err
		}
		have, _, _ := unstructured.NestedInt64(now.Object, "spec", "replicas")
		if o.Current >= 0 && have != int64(o.Current) {
			return fmt.Errorf("expected replicas to be %d, was %d", o.Current, have)
		}
		if o.Version != "" && now.GetResourceVersion() != o.Version {
			return fmt.Errorf("expected resource version to be %s, was %s", o.Version, now.GetResourceVersion())
		}
		patch = fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`, now.GetResourceVersion(), o.Replicas)
	}
	_, err := c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.MergePatchType, []byte(patch), o.query(), "scale")
	if notFound(err) {
		if _, getErr := c.Get(ctx, t.Kind, t.Namespace, t.Name); getErr == nil {
			return fmt.Errorf("%s cannot be scaled: the server has no scale for it", t)
		}
	}
	return err
}
