package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

// createOptions are the flags of create and of its subcommands.
type createOptions struct {
	*Factory
	selection
	DryRun   string
	Format   string
	Validate string
	Replace  bool
	// Make is a subcommand's object; nil: those of the files.
	Make func(namespace string) (*rest.Object, error)
}

func newCreate(f *Factory, run func(context.Context, *createOptions) error) *cobra.Command {
	o := &createOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create objects, from files or from flags",
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
		newCreateDeployment(f, run), newCreateService(f, run), newCreateServiceAccount(f, run),
		newCreateRole(f, run), newCreateClusterRole(f, run), newCreateRoleBinding(f, run), newCreateClusterRoleBinding(f, run), newCreateToken(f, runCreateToken),
	)
	return cmd
}

func (o *createOptions) commonFlags(cmd *cobra.Command) {
	dryRunFlag(cmd, &o.DryRun)
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print the objects: "+output.Formats)
	cmd.Flags().StringVar(&o.Validate, "validate", "strict", "unknown and duplicate fields: strict (an error), warn, or ignore")
}

func runCreate(ctx context.Context, o *createOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	validation, err := fieldValidation(o.Validate)
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.Format, o.DryRun)
	if err != nil {
		return err
	}
	if o.Make != nil && o.DryRun == "client" { // needs no cluster
		obj, err := o.made()
		if err != nil {
			return err
		}
		return report.object(obj, "created")
	}
	targets, err := o.targets(ctx)
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		obj := t.Object
		if o.DryRun != "client" {
			q := rest.WriteQuery(o.DryRun == "server", manager)
			q.Set("fieldValidation", validation)
			if obj, err = c.Create(ctx, t.Kind, t.Namespace, t.Object, q); err != nil {
				errs = append(errs, inSource(t.Source, err))
				continue
			}
		}
		if err := report.object(obj, "created"); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// made is the object of a subcommand, in its namespace.
func (o *createOptions) made() (*rest.Object, error) {
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	return o.Make(namespace)
}

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

// inSource says from which file an object with an error came.
func inSource(source string, err error) error {
	if source == "" {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// replaceOptions are the flags of replace.
type replaceOptions struct {
	*Factory
	selection
	DryRun, Format, Validate string
}

func newReplace(f *Factory, run func(context.Context, *replaceOptions) error) *cobra.Command {
	o := &replaceOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "replace -f FILE",
		Short: "Replace objects by those of files",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.Files) == 0 {
				return errors.New("must specify one of -f")
			}
			return run(cmd.Context(), o)
		},
	}
	o.fileFlags(cmd, "the objects")
	dryRunFlag(cmd, &o.DryRun)
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print the objects: "+output.Formats)
	cmd.Flags().StringVar(&o.Validate, "validate", "strict", "unknown and duplicate fields: strict (an error), warn, or ignore")
	return cmd
}

func runReplace(ctx context.Context, o *replaceOptions) error {
	if err := checkDryRun(o.DryRun); err != nil {
		return err
	}
	validation, err := fieldValidation(o.Validate)
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.Format, o.DryRun)
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		obj := t.Object
		if o.DryRun != "client" {
			q := rest.WriteQuery(o.DryRun == "server", manager)
			q.Set("fieldValidation", validation)
			if obj, err = c.Update(ctx, t.Kind, t.Namespace, t.Object, q); err != nil {
				errs = append(errs, inSource(t.Source, err))
				continue
			}
		}
		if err := report.object(obj, "replaced"); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
