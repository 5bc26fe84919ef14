package crew

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"podium/pkg/controllers/kit"
)

// Member is one controller of a daemon's list.
type Member struct {
	Name      string // as --controllers has it
	Component string // as its events have it
	Account   string // in kube-system, which it works as
	Workers   int
	Build     func(kit.Kit) (Runner, error) // nil: the configuration does not ask for it
}

// Runner is a controller.
type Runner interface {
	Run(ctx context.Context) error
}

// Plain is the Build of a controller that needs no more than its kit.
func Plain[C Runner](build func(kit.Kit) C) func(kit.Kit) (Runner, error) {
	return func(k kit.Kit) (Runner, error) { return build(k), nil }
}

// enabled are the members that the configuration asks for.
func enabled(members []Member, asked []string) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Build == nil || !selected(asked, m.Name) })
}

func selected(asked []string, name string) bool {
	switch {
	case slices.Contains(asked, name):
		return true
	case slices.Contains(asked, "-"+name):
		return false
	}
	return len(asked) == 0 || slices.Contains(asked, "*")
}

// CheckNames finds controllers that were asked for and do not exist.
func (c *Config) CheckNames(members []Member) error {
	known := []string{"*"}
	for _, m := range members {
		known = append(known, m.Name)
	}
	for _, name := range c.Controllers {
		if !slices.Contains(known, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: %q is not a controller; there are %s", name, strings.Join(known[1:], ", "))
		}
	}
	return nil
}
