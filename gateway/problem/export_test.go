package problem

import "reflect"

// Types lists the error types that have a row, as import path and name.
func Types() []string {
	out := make([]string, 0, len(table))
	for t := range table {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		out = append(out, t.PkgPath()+"."+t.Name())
	}
	return out
}
