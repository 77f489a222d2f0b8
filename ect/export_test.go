package ect

import "strconv"

// Warnings keeps the first entries of a list, as many as fit limit bytes as a
// JSON array (0: WarningsSize). If any are omitted, hash is Hash over the whole
// list as a JSON array without white space, by which a list kept elsewhere can
// be recognised; else it is empty.
func Warnings(list []string, limit int) (first []string, omitted int, hash string) {
	if limit <= 0 {
		limit = WarningsSize
	}
	e := Ext{}
	e.SetList("k", list, limit)
	first, _ = e.Strings("k")
	omitted, _ = strconv.Atoi(string(e["k"+suffixOmitted]))
	hash, _ = e.String("k" + suffixHash)
	return first, omitted, hash
}
