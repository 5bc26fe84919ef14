// Package allocation chooses devices for ResourceClaims. It is a library without I/O: the
// scheduler's plugin DynamicResources keeps its state current.
//
// An Index holds the devices that drivers publish in ResourceSlices, by pool. A Usage holds
// what is allocated. A Problem is what the claims of a pod ask for; Problem.On searches
// devices for all of them on one node, by backtracking: it takes the first device that
// matches, and gives it back if the remaining requests cannot be satisfied then.
package allocation
