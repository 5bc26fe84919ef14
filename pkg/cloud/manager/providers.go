package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"podium/pkg/cloud"
	"podium/pkg/cloud/baremetal"
	"podium/pkg/cloud/docker"
)

// providers are all providers, by their name in --cloud-provider.
var providers = map[string]func(cloud.Setup) (*cloud.Provider, error){
	baremetal.Name: baremetal.New,
	docker.Name:    docker.New,
}

func provider(name string, s cloud.Setup) (*cloud.Provider, error) {
	build := providers[name]
	if build == nil {
		return nil, fmt.Errorf("--cloud-provider %q: use one of %s", name, strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	p, err := build(s)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	return p, nil
}
