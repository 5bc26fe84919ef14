package docker

import (
	"context"
	"fmt"
	"net/http"

	"podium/api/config/v1alpha1"
	"podium/pkg/cloud"
	"podium/pkg/cloud/balancer"
	"podium/pkg/cloud/pool"
)

// balancers allocates addresses for Services from the part of the cluster's network that the
// engine does not allocate from.
func balancers(e *engine, s cloud.Setup) *balancer.Balancer {
	pools := func(ctx context.Context) ([]pool.Pool, error) {
		r, err := e.keeps(ctx, s.ClusterName)
		return []pool.Pool{{Name: Name, Ranges: []pool.Range{r}}}, err
	}
	return balancer.New(balancer.Config{Client: s.Client, Services: s.Services, Pools: pools, Log: s.Log})
}

// keeps returns the addresses of a cluster's network that are reserved for load balancers, as
// the network's label says.
func (e *engine) keeps(ctx context.Context, cluster string) (pool.Range, error) {
	name := v1alpha1.NetworkName(cluster)
	var network struct{ Labels map[string]string }
	if err := e.call(ctx, http.MethodGet, "/networks/"+name, nil, nil, &network); err != nil {
		return pool.Range{}, err
	}
	text := network.Labels[v1alpha1.LabelBalancers]
	if text == "" {
		return pool.Range{}, fmt.Errorf("network %s keeps no addresses for load balancers (its label %s is missing): it was created by an older version of podium; create the cluster again", name, v1alpha1.LabelBalancers)
	}
	r, err := pool.ParseRange(text)
	if err != nil {
		return pool.Range{}, fmt.Errorf("network %s, label %s: %w", name, v1alpha1.LabelBalancers, err)
	}
	return r, nil
}
