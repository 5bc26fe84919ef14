package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"podium/pkg/cli/rest"
)

// createOptions are the flags of create and of its subcommands.
type createOptions struct {
	change
	// Make returns the object of a subcommand; nil: create the objects of
	// files.
	Make func(namespace string) (*rest.Object, error)
}

func newCreate(f *Factory, run func(context.Context, *createOptions) error) *cobra.Command {
	o := &createOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create a resource from a file or from standard input",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.Files) == 0 {
				return errors.New("must specify one of -f, or what to create: podium create --help")
			}
			return run(cmd.Context(), o)
		},
	}
	o.fileFlags(cmd, "the objects to create")
	o.commonFlags(cmd)
	cmd.AddCommand(
		newCreateNamespace(f, run), newCreateConfigMap(f, run), newCreateSecret(f, run),
		newCreateIngress(f, run), newCreatePodDisruptionBudget(f, run), newCreatePriorityClass(f, run), newCreateQuota(f, run),
		newCreateDeployment(f, run), newCreateJob(f, run), newCreateCronJob(f, run), newCreateService(f, run), newCreateServiceAccount(f, run),
		newCreateRole(f, run), newCreateClusterRole(f, run), newCreateRoleBinding(f, run), newCreateClusterRoleBinding(f, run), newCreateToken(f, runCreateToken),
	)
	return cmd
}

func (o *createOptions) commonFlags(cmd *cobra.Command) {
	dryRunFlag(cmd, &o.DryRun)
	o.formatFlag(cmd)
	o.validateFlag(cmd)
}

func runCreate(ctx context.Context, o *createOptions) error {
	if o.Make != nil && o.DryRun == "client" {
		return o.show()
	}
	return o.eachOf(ctx, o.targets, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if o.DryRun == "client" {
			return t.Object, "created", nil
		}
		obj, err := c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
		return obj, "created", err
	})
}

// show prints what a subcommand would create, without a cluster.
func (o *createOptions) show() error {
	if err := o.check(); err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.Format, o.DryRun)
	if err != nil {
		return err
	}
	obj, err := o.made()
	if err != nil {
		return err
	}
	return report.object(obj, "created")
}

// made returns the object of a subcommand, in its namespace.
func (o *createOptions) made() (*rest.Object, error) {
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	return o.Make(namespace)
}

// targets returns the objects to create: the subcommand's, or those of files.
func (o *createOptions) targets(ctx context.Context) ([]target, error) {
	if o.Make == nil {
		return o.resolve(ctx, o.Factory, false)
	}
	obj, err := o.made()
	if err != nil {
		return nil, err
	}
	c, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	k, err := c.ByGVK(ctx, obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return []target{{Kind: k, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj}}, nil
}

func newReplace(f *Factory, run func(context.Context, *change) error) *cobra.Command {
	o := &change{Factory: f}
	cmd := &cobra.Command{
		Use:   "replace -f FILE",
		Short: "Replace a resource by file name or standard input",
		Args:  noArgs,
		RunE:  onFiles(&o.selection, o, run),
	}
	o.writeFlags(cmd, "the objects")
	o.validateFlag(cmd)
	return cmd
}

func runReplace(ctx context.Context, o *change) error {
	return o.each(ctx, false, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if o.DryRun == "client" {
			return t.Object, "replaced", nil
		}
		obj, err := c.Update(ctx, t.Kind, t.Namespace, t.Object, o.query())
		return obj, "replaced", err
	})
}
