// Package pool is arithmetic of the addresses that load balancers may have:
// reading the ranges an operator wrote, telling whether an address is among
// them, and picking one that is not in use. It keeps no state; who uses what is
// for the caller to say.
package pool
