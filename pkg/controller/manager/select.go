package manager

import (
	"fmt"
	"slices"
	"strings"

	"podium/pkg/controller"
)

// enabled returns the controllers that the configuration enables.
func enabled(specs []controller.Spec, asked []string) []controller.Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s controller.Spec) bool { return s.New == nil || !selected(asked, s.Name) })
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

// CheckNames returns an error for a configured controller that does not exist.
func (c *Config) CheckNames(specs []controller.Spec) error {
	known := []string{"*"}
	for _, s := range specs {
		known = append(known, s.Name)
	}
	for _, name := range c.Controllers {
		if !slices.Contains(known, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: %q is not a controller; there are %s", name, strings.Join(known[1:], ", "))
		}
	}
	return nil
}
