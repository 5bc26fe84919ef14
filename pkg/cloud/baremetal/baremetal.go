package baremetal

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/api/config/v1alpha1"
	"podium/pkg/cloud"
	"podium/pkg/cloud/balancer"
	"podium/pkg/cloud/pool"
)

// Name is the name of the provider.
const Name = "baremetal"

// New returns the provider, or an error if the configuration is invalid.
func New(s cloud.Setup) (*cloud.Provider, error) {
	config, pools, err := parse(s.Config)
	if err != nil {
		return nil, fmt.Errorf("--cloud-config: %w", err)
	}
	p := &cloud.Provider{Name: Name, Instances: newMachines(config.Nodes)}
	if len(pools) > 0 {
		all := func(context.Context) ([]pool.Pool, error) { return pools, nil }
		p.LoadBalancers = balancer.New(balancer.Config{Client: s.Client, Services: s.Services, Pools: all, Log: s.Log})
	}
	return p, nil
}

// parse parses the configuration file and returns all its errors at once.
func parse(data []byte) (*v1alpha1.BareMetalCloud, []pool.Pool, error) {
	if len(data) == 0 {
		return &v1alpha1.BareMetalCloud{}, nil, nil
	}
	c, err := v1alpha1.DecodeBareMetalCloud(data)
	pools, errs := poolsOf(c.AddressPools)
	return c, pools, errors.Join(err, v1alpha1.AsError(errs))
}

// poolsOf parses the address ranges and checks that they do not overlap.
func poolsOf(configs []v1alpha1.AddressPool) (pools []pool.Pool, errs field.ErrorList) {
	type place struct {
		pool.Range
		at *field.Path
	}
	var all []place
	for i, c := range configs {
		p := pool.Pool{Name: c.Name}
		for j, text := range c.Addresses {
			at := field.NewPath("addressPools").Index(i).Child("addresses").Index(j)
			r, err := pool.ParseRange(text)
			if err != nil {
				errs = append(errs, field.Invalid(at, text, err.Error()))
				continue
			}
			for _, other := range all {
				if r.Overlaps(other.Range) {
					errs = append(errs, field.Invalid(at, text, fmt.Sprintf("has addresses in common with %s, %s", other.at, other.Range)))
				}
			}
			all = append(all, place{r, at})
			p.Ranges = append(p.Ranges, r)
		}
		pools = append(pools, p)
	}
	return pools, errs
}

// machines are the machines in the file, by node name.
type machines map[string]v1alpha1.Machine

func newMachines(list []v1alpha1.Machine) machines {
	out := machines{}
	for _, m := range list {
		out[m.Name] = m
	}
	return out
}

// Metadata implements cloud.Instances.
func (ms machines) Metadata(_ context.Context, n *corev1.Node) (cloud.Metadata, error) {
	m := ms[n.Name]
	out := cloud.Metadata{ProviderID: Name + "://" + n.Name, Type: m.InstanceType, Zone: m.Zone, Region: m.Region}
	for _, a := range m.Addresses {
		out.Addresses = append(out.Addresses, corev1.NodeAddress{Type: a.Type, Address: a.Address})
	}
	return out, nil
}

// Shutdown implements cloud.Instances. It returns false: a machine that is off cannot be told
// from one that is only disconnected.
func (machines) Shutdown(context.Context, *corev1.Node) (bool, error) { return false, nil }
