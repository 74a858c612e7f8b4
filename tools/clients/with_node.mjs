// node-postgres: parameters and types, prepared statements, a pool, cursors, transactions, errors, encryption.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import pg from 'pg'
import Cursor from 'pg-cursor'

const checks = []
const check = (name, run) => checks.push([name, run])
const client = new pg.Client()
await client.connect()

check('values come back', async () => {
  const values = [
    ['boolean', true], ['int', 7], ['bigint', '1099511627776'], ['double precision', 0.5], ['text', "it's"],
    ['numeric', '12.50'], ['int[]', [1, null, 3]], ['text[]', ['a', 'b,"c']], ['bytea', Buffer.from([0, 255])],
    ['timestamptz', new Date('2024-01-01T00:00:00Z')], ['json', { a: [1] }], ['jsonb', { a: [1] }],
    ['uuid', '00000000-0000-0000-0000-000000000005'], ['varchar(3)', 'abc'], ['text', null],
  ]
  for (const [type, value] of values) {
    const found = (await client.query(`select $1::${type} as v`, [value])).rows[0].v
    assert.deepEqual(found, value, type)
  }
  const interval = (await client.query("select interval '1 day 02:00:00' as v")).rows[0].v
  assert.deepEqual({ ...interval }, { days: 1, hours: 2 })
})

check('rows and fields', async () => {
  await client.query('create table r (k serial primary key, v text, at timestamptz default now())')
  const found = await client.query("insert into r (v) values ('a'), ('b') returning k, v")
  assert.deepEqual(found.rows, [{ k: 1, v: 'a' }, { k: 2, v: 'b' }])
  assert.equal(found.command, 'INSERT')
  assert.equal(found.rowCount, 2)
  assert.deepEqual(found.fields.map((field) => [field.name, field.dataTypeID]), [['k', 23], ['v', 25]])
  const arrays = await client.query({ text: 'select 1, 2', rowMode: 'array' })
  assert.deepEqual(arrays.rows, [[1, 2]])
  const several = await client.query('select 1 as a; select 2 as b')
  assert.deepEqual(several.map((one) => one.rows[0]), [{ a: 1 }, { b: 2 }])
})

check('prepared statements', async () => {
  for (let number = 0; number < 20; number++) {
    const found = await client.query({ name: 'plus', text: 'select $1::int + 1 as v', values: [number] })
    assert.equal(found.rows[0].v, number + 1)
  }
  const binary = await client.query({ text: 'select $1::int as v', values: [7], binary: true })
  assert.equal(binary.rows[0].v, 7)
})

check('a cursor', async () => {
  const cursor = client.query(new Cursor('select g from generate_series(1, 250) g'))
  let count = 0
  for (;;) {
    const rows = await cursor.read(100)
    if (rows.length === 0) break
    count += rows.length
  }
  await cursor.close()
  assert.equal(count, 250)
})

check('transactions and errors', async () => {
  await client.query('begin')
  await client.query("insert into r (v) values ('c')")
  await assert.rejects(client.query('insert into r (k) values (1)'), { code: '23505', constraint: 'r_pkey', table: 'r' })
  await assert.rejects(client.query('select 1'), { code: '25P02' })
  await client.query('rollback')
  await assert.rejects(client.query('selec'), { code: '42601', position: '1' })
  const found = await client.query('select count(*)::int as n from r')
  assert.equal(found.rows[0].n, 2)
})

check('notices and settings', async () => {
  const notices = []
  client.on('notice', (notice) => notices.push(notice.message))
  await client.query('drop table if exists nothing')
  assert.deepEqual(notices, ['table "nothing" does not exist, skipping'])
  await client.query("set application_name = 'node'")
  assert.equal((await client.query('show application_name')).rows[0].application_name, 'node')
})

check('a pool', async () => {
  const pool = new pg.Pool({ max: 4 })
  const all = await Promise.all([...Array(40).keys()].map((n) => pool.query('select $1::int as v', [n])))
  assert.deepEqual(all.map((one) => one.rows[0].v), [...Array(40).keys()])
  await pool.end()
})

check('the information schema, as migration tools ask it', async () => {
  const columns = await client.query(
    `select column_name, data_type, is_nullable, column_default from information_schema.columns
     where table_schema = $1 and table_name = $2 order by ordinal_position`, ['public', 'r'])
  assert.equal(columns.rows.length, 3)
  assert.equal(columns.rows[0].column_default, "nextval('r_k_seq'::regclass)")
  const keys = await client.query(
    `select tc.constraint_name, kcu.column_name from information_schema.table_constraints tc
     join information_schema.key_column_usage kcu using (constraint_schema, constraint_name)
     where tc.table_name = $1 and tc.constraint_type = 'PRIMARY KEY'`, ['r'])
  assert.deepEqual(keys.rows, [{ constraint_name: 'r_pkey', column_name: 'k' }])
  assert.equal((await client.query("select to_regclass('r') is not null as is_there")).rows[0].is_there, true)
})

check('many rows in one statement', async () => {
  await client.query('create table many (a int, b text)')
  const values = [...Array(1000).keys()].flatMap((n) => [n, `v${n}`])
  const places = [...Array(1000).keys()].map((n) => `($${2 * n + 1}, $${2 * n + 2})`).join(', ')
  assert.equal((await client.query(`insert into many values ${places}`, values)).rowCount, 1000)
})

check('by tcp with a password, encrypted', async () => {
  if (!process.env.LODESTONE_TLS_CERT) return
  const other = new pg.Client({
    host: 'localhost', user: process.env.LODESTONE_TCP_USER, password: process.env.LODESTONE_TCP_PASSWORD,
    ssl: { ca: fs.readFileSync(process.env.LODESTONE_TLS_CERT) },
  })
  await other.connect()
  assert.equal((await other.query('select current_user::text as v')).rows[0].v, 'tester')
  await other.end()
})

let failed = 0
for (const [name, run] of checks) {
  try {
    await client.query('rollback')
    await run()
  } catch (error) {
    failed += 1
    console.log(`  failed: ${name}: ${String(error.message).split('\n').slice(0, 8).join(' ')}`)
  }
}
console.log(`  ${checks.length - failed} of ${checks.length} checks`)
await client.end()
process.exit(failed ? 1 : 0)
