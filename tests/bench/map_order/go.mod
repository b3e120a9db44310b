module nodetopo/bench/map_order

go 1.26
