package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"podium/pkg/cli/rest"
)

// replaceOptions are the flags of replace.
type replaceOptions struct {
	change
	Subresource string
	Raw         string        // URI to which the file is put
	Removal     deleteOptions // how --force deletes the objects before it creates them again
}

func newReplace(f *Factory, run func(context.Context, *replaceOptions) error) *cobra.Command {
	o := &replaceOptions{change: change{Factory: f}, Removal: deleteOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "replace -f FILE",
		Short: "Replace a resource by file name or standard input",
		Example: `  podium replace -f pod.yaml
  podium replace --force -f pod.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkReplace(cmd); err != nil {
				return err
			}
			return onFiles(&o.selection, o, run)(cmd, args)
		},
	}
	o.writeFlags(cmd, "the objects")
	o.validateFlag(cmd)
	o.saveConfigFlag(cmd)
	o.Removal.deletionFlags(cmd)
	fs := cmd.Flags()
	fs.Lookup("force").Usage = "delete the objects and create them again, for changes that an update cannot make; with --grace-period=0, bypass graceful deletion"
	fs.StringVar(&o.Subresource, "subresource", "", "subresource to replace: status, scale or resize")
	fs.Bool("wait", false, "with --force, wait until the old objects are gone: this is always so")
	fs.StringVar(&o.Raw, "raw", "", "raw URI to PUT to the server; uses the transport of the kubeconfig file")
	return cmd
}

// checkReplace reports flags that do not go together.
func (o *replaceOptions) checkReplace(cmd *cobra.Command) error {
	for _, name := range []string{"cascade", "grace-period", "timeout", "wait"} {
		if cmd.Flags().Changed(name) && !o.Removal.Force {
			return fmt.Errorf("--%s says how --force deletes the object: it requires --force", name)
		}
	}
	switch o.Subresource {
	case "", "status", "scale", "resize":
	default:
		return fmt.Errorf("--subresource=%q: use status, scale or resize", o.Subresource)
	}
	switch {
	case o.Removal.Force && o.Subresource != "":
		return errors.New("--force replaces whole objects: it cannot be used with --subresource")
	case o.Removal.Force && o.DryRun != "none":
		return errors.New("--dry-run cannot be used when --force is set")
	case o.Raw != "" && (len(o.Files) != 1 || o.Kustomize != "" || o.Format != "" || o.DryRun != "none" || o.Removal.Force || o.Subresource != ""):
		return errors.New("--raw can only use a single local file or stdin, without other flags")
	}
	return nil
}

func runReplace(ctx context.Context, o *replaceOptions) error {
	if o.Raw != "" {
		body, err := o.openFile(o.Files[0])
		if err != nil {
			return err
		}
		return o.sendRaw(ctx, http.MethodPut, o.Raw, body)
	}
	return o.each(ctx, false, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if err := o.saveConfig(t.Object); err != nil || o.DryRun == "client" {
			return t.Object, "replaced", err
		}
		if o.Removal.Force {
			return o.recreate(ctx, c, t)
		}
		var parts []string
		if o.Subresource != "" {
			parts = []string{o.Subresource}
		}
		obj, err := c.Update(ctx, t.Kind, t.Namespace, t.Object, o.query(), parts...)
		return obj, "replaced", err
	})
}

// recreate deletes an object, waits until it is gone, and creates it again. An object
// that does not exist is created.
func (o *replaceOptions) recreate(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
	removal := o.Removal
	removal.Force = removal.GracePeriod == 0 // --force alone deletes gracefully
	opts, err := removal.options()
	if err != nil {
		return nil, "", err
	}
	answer, err := c.Delete(ctx, t.Kind, t.Namespace, t.Name, opts)
	if err == nil {
		err = removal.await(ctx, c, []ending{{t, uidIn(answer)}})
	}
	if err != nil && !notFound(err) {
		return nil, "", err
	}
	t.Object.SetResourceVersion("")
	t.Object.SetUID("")
	obj, err := c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
	return obj, "replaced", err
}
