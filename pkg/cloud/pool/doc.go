// Package pool computes with the addresses for load balancers: it parses the configured
// ranges, finds whether an address is in one, and picks an unused address. It keeps no state;
// the caller determines which addresses are in use.
package pool
