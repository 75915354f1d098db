-- locks: records, saga_aliases, saga_history, saga_labels, saga_records, sagas
drop table {prefix}records, {prefix}saga_records, {prefix}saga_labels, {prefix}saga_aliases, {prefix}saga_history, {prefix}sagas;
