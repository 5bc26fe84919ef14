package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/cli/output"
)

// whoAmIOptions are the flags of auth whoami.
type whoAmIOptions struct {
	*Factory
	printing
}

func newWhoAmI(f *Factory, run func(context.Context, *whoAmIOptions) error) *cobra.Command {
	o := &whoAmIOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show the identity that the server sees",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.printingFlags(cmd, "print the SelfSubjectReview: ", "")
	return cmd
}

func runWhoAmI(ctx context.Context, o *whoAmIOptions) error {
	gvk := authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview")
	question, err := toObject(&authenticationv1.SelfSubjectReview{}, gvk)
	if err != nil {
		return err
	}
	delete(question.Object, "status")
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	kind, err := c.ByGVK(ctx, gvk)
	if err != nil {
		return err
	}
	answer, err := c.Post(ctx, kind.Path("", ""), question)
	if err != nil {
		return err
	}
	if format := o.options(); format.Format != "" {
		printer, err := output.New(format)
		if err != nil {
			return err
		}
		return printer.Print(o.Out, answer)
	}
	var review authenticationv1.SelfSubjectReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &review); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return (&output.Columns{}).Write(o.Out, attributes(review.Status.UserInfo))
}

// attributes formats a user as a table.
func attributes(u authenticationv1.UserInfo) [][]string {
	rows := [][]string{{"ATTRIBUTE", "VALUE"}}
	if u.Username != "" {
		rows = append(rows, []string{"Username", u.Username})
	}
	if u.UID != "" {
		rows = append(rows, []string{"UID", u.UID})
	}
	if len(u.Groups) > 0 {
		rows = append(rows, []string{"Groups", fmt.Sprint(u.Groups)})
	}
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		rows = append(rows, []string{"Extra: " + key, fmt.Sprint([]string(u.Extra[key]))})
	}
	return rows
}
