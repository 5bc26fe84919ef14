package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KindBareMetalCloud is the kind of BareMetalCloud.
const KindBareMetalCloud = "BareMetalCloud"

// BareMetalCloud is the configuration of the cloud-controller-manager for
// machines without a cloud's API: their zones and addresses, and the addresses
// for load balancers on their network.
type BareMetalCloud struct {
	metav1.TypeMeta `json:",inline"`
	AddressPools    []AddressPool `json:"addressPools,omitempty"` // empty: Services of type LoadBalancer are ignored
	Nodes           []Machine     `json:"nodes,omitempty"`        // a node that is not listed has no zone, and the addresses that its kubelet reports
}

// AddressPool is a set of addresses for load balancers. Nothing else may assign
// them, such as a DHCP server.
type AddressPool struct {
	Name      string   `json:"name,omitempty"` // default "default"
	Addresses []string `json:"addresses"`      // 10.0.0.240-10.0.0.250, 2001:db8::/120 or one address
}

// Machine is a machine that a node runs on.
type Machine struct {
	Name         string           `json:"name"` // name of the Node
	Zone         string           `json:"zone,omitempty"`
	Region       string           `json:"region,omitempty"`
	InstanceType string           `json:"instanceType,omitempty"`
	Addresses    []MachineAddress `json:"addresses,omitempty"`
}

// MachineAddress is an address of a machine.
type MachineAddress struct {
	Type    corev1.NodeAddressType `json:"type,omitempty"` // default InternalIP
	Address string                 `json:"address"`
}

// DecodeBareMetalCloud is Decode for a BareMetalCloud. With an error it returns
// what could be decoded.
func DecodeBareMetalCloud(data []byte) (*BareMetalCloud, error) {
	c := &BareMetalCloud{}
	return c, decode(data, KindBareMetalCloud, &c.TypeMeta, c)
}

// Default sets the defaults of empty fields.
func (c *BareMetalCloud) Default() {
	for i := range c.AddressPools {
		fill(&c.AddressPools[i].Name, "default")
	}
	for i := range c.Nodes {
		for j := range c.Nodes[i].Addresses {
			fill(&c.Nodes[i].Addresses[j].Type, corev1.NodeInternalIP)
		}
	}
}

// Validate returns all errors of a BareMetalCloud with its defaults set. It
// does not parse the ranges of addresses: their user does.
func (c *BareMetalCloud) Validate() (errs field.ErrorList) {
	names := map[string]bool{}
	for i, p := range c.AddressPools {
		at := field.NewPath("addressPools").Index(i)
		for _, msg := range validation.IsDNS1123Label(p.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), p.Name, msg))
		}
		if names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
		if len(p.Addresses) == 0 {
			errs = append(errs, field.Required(at.Child("addresses"), "ranges of addresses, like 10.0.0.240-10.0.0.250"))
		}
	}
	machines := map[string]bool{}
	for i := range c.Nodes {
		m, at := &c.Nodes[i], field.NewPath("nodes").Index(i)
		if machines[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		machines[m.Name] = true
		errs = append(errs, m.validate(at)...)
	}
	return errs
}

func (m *Machine) validate(at *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsDNS1123Subdomain(m.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), m.Name, msg))
	}
	for _, label := range []struct{ name, value string }{{"zone", m.Zone}, {"region", m.Region}, {"instanceType", m.InstanceType}} {
		for _, msg := range validation.IsValidLabelValue(label.value) {
			errs = append(errs, field.Invalid(at.Child(label.name), label.value, msg))
		}
	}
	for j, a := range m.Addresses {
		errs = append(errs, a.validate(at.Child("addresses").Index(j))...)
	}
	return errs
}

func (a *MachineAddress) validate(at *field.Path) (errs field.ErrorList) {
	ips := []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP}
	names := []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
	switch {
	case slices.Contains(ips, a.Type):
		if _, err := netip.ParseAddr(a.Address); err != nil {
			errs = append(errs, field.Invalid(at.Child("address"), a.Address, fmt.Sprintf("is not an IP address, and the type is %s", a.Type)))
		}
	case slices.Contains(names, a.Type):
		for _, msg := range validation.IsDNS1123Subdomain(a.Address) {
			errs = append(errs, field.Invalid(at.Child("address"), a.Address, msg))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), a.Type, append(ips, names...)))
	}
	return errs
}
