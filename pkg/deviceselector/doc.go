// Package deviceselector compiles and evaluates the CEL expressions with which DeviceClasses
// and ResourceClaims select devices. The API server refuses expressions that do not compile;
// the scheduler evaluates the others, with the same environment.
//
// An expression is about the variable device: its driver, its attributes and capacities by
// domain and name, and whether several claims may share it.
// https://kubernetes.io/docs/reference/using-api/cel/
package deviceselector
